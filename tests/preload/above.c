/* Locks of a description that two processes have: one ends, and somebody interferes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

/* What another process is told that asks for the lock. */
static void other(const char *when, const char *path)
{
    int status = 0;
    fflush(stdout);
    if (fork() == 0) {
        int fd = open(path, O_RDWR);
        _exit(flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno);
    }
    wait(&status);
    printf("%s: %s\n", when, strerror(WEXITSTATUS(status)));
}

static void *goes_on(void *given)
{
    pause();
    return given;
}

static void shared(void)
{
    int fd = open("shared", O_RDWR | O_CREAT, 0600), status;
    if (fork() == 0) _exit(flock(fd, LOCK_EX | LOCK_NB));
    wait(&status);
    other("locked by a child", "shared");
    printf("%d\n", flock(fd, LOCK_UN));
    other("let go of by its parent", "shared");
    close(fd);
}

static void ended(void)
{
    int told[2], go[2], *ends = dlsym(RTLD_DEFAULT, "beneath_ends");
    int fd = open("ended", O_RDWR | O_CREAT, 0600);
    char byte;
    if (!ends || pipe(told) != 0 || pipe(go) != 0) return;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, goes_on, NULL);
        flock(fd, LOCK_EX);
        close(go[1]);
        ends[0] = told[1];
        ends[1] = go[0];
        _exit(0);
    }
    read(told[0], &byte, 1);
    printf("%d\n", flock(fd, LOCK_EX | LOCK_NB));
    close(fd);
    other("a thread goes on", "ended");
    close(go[1]);
    waitpid(child, NULL, 0);
    other("the process is gone", "ended");
}

int main(int argc, char **argv)
{
    if (argc < 2 || chdir(argv[1]) != 0) return 1;
    shared();
    ended();
    return 0;
}
