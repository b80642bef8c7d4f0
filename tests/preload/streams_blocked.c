/* A number is led elsewhere while another thread waits in its stream. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int ends[2];

static void *waits(void *unused) {
    (void)unused;
    printf("first %c\n", getchar());
    return NULL;
}

int main(int argc, char **argv) {
    char path[4096];
    snprintf(path, sizeof path, "%s/file", argv[argc - 1]);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "file\n", 5);
    lseek(fd, 0, SEEK_SET);
    pipe(ends);
    dup2(ends[0], 0);
    pthread_t thread;
    pthread_create(&thread, NULL, waits, NULL);
    usleep(100000);
    dup2(fd, 0);
    write(ends[1], "p", 1);
    pthread_join(thread, NULL);
    char line[16] = "";
    char *got = fgets(line, sizeof line, stdin);
    printf("then %d %s", got != NULL, line);
    return 0;
}
