/* The offset that processes share, when whoever goes by it becomes another program amid a write, is
   stopped, or has no descriptors left. `offset_kept FOLDER` prints what it finds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY ((size_t)32 << 20)

static char **own_words;
static char number[16];
static int fd;

static void *become(void *none)
{
    usleep(20000);
    execl("/proc/self/exe", own_words[0], own_words[1], number, (char *)0);
    perror("exec");
    return none;
}

/* Another thread becomes a program, whose first thread has the number of the one that writes. */
static void amid_a_write(char *bytes)
{
    pthread_t thread;
    snprintf(number, sizeof number, "%d", fd);
    pthread_create(&thread, NULL, become, NULL);
    for (;;) {
        lseek(fd, 0, SEEK_SET);
        if (write(fd, bytes, MANY) < 0) perror("write");
    }
}

int main(int count, char **words)
{
    if (count < 2) return 2;
    if (count > 2) {
        fd = atoi(words[2]);
        alarm(20);
        printf("the program that came after writes: %zd\n", write(fd, "x", 1));
        return 0;
    }
    char path[4000], *bytes = malloc(MANY);
    own_words = words;
    memset(bytes, 'a', MANY);
    snprintf(path, sizeof path, "%s/shared", words[1]);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    write(fd, bytes, MANY);
    /* A holder that is stopped still is one, also for whoever cannot look. */
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    pid_t holder = fork();
    if (holder == 0) {
        for (;;) {
            lseek(fd, 0, SEEK_SET);
            write(fd, bytes, MANY);
        }
    }
    usleep(200000);
    kill(holder, SIGSTOP);
    usleep(100000);
    pid_t writer = fork();
    if (writer == 0) {
        while (open("/dev/null", O_RDONLY) >= 0) {
        }
        lseek(fd, 0, SEEK_CUR);
        write(fd, "x", 1);
        _exit(0);
    }
    usleep(700000);
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
    int status = 0;
    waitpid(writer, &status, 0);
    printf("the one that waited has ended: %d\n", WIFEXITED(status));
    fflush(stdout);
    amid_a_write(bytes);
    return 0;
}
