/* A program extends a file in one thread, and becomes another program in a second one. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *becomes(void *given)
{
    usleep(30000);
    execl("/bin/sleep", "sleep", "1000", NULL);
    return given;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 2 || chdir(argv[1]) != 0) return 1;
    int fd = open("extended", O_WRONLY | O_CREAT | O_APPEND, 0600);
    close(fd);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            size_t size = 8 << 20;
            char *bytes = calloc(1, size);
            fd = open("extended", O_WRONLY | O_APPEND);
            pthread_t thread;
            pthread_create(&thread, NULL, becomes, NULL);
            for (;;) {
                for (int i = 0; i < 4; i++) write(fd, bytes, size);
                ftruncate(fd, 0);
            }
        }
        char path[64], name[16] = "";
        sprintf(path, "/proc/%d/comm", child);
        while (strcmp(name, "sleep\n")) {
            int comm = open(path, O_RDONLY);
            name[read(comm, name, sizeof name - 1)] = 0;
            close(comm);
        }
        fd = open("extended", O_WRONLY | O_APPEND);
        ssize_t done = write(fd, "x", 1);
        printf("%zd %s\n", done, done < 0 ? strerror(errno) : "written");
        close(fd);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    return 0;
}
