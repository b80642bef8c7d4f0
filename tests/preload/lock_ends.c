/* When locks of a file end: by which of its descriptors that are closed, and with which process. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *path = "locked";

/* Whether another process gets a lock of either kind. */
static const char *others_get(int whole)
{
    int status = 0;
    fflush(stdout);
    if (fork() == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
        int fd = open(path, O_RDWR);
        int got = whole ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_SETLK, &lock);
        _exit(got == 0 ? 0 : errno);
    }
    wait(&status);
    return WEXITSTATUS(status) == 0 ? "free" : strerrorname_np(WEXITSTATUS(status));
}

static int opened_and_locked(int whole)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    int got = whole ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, F_SETLK, &lock);
    printf("locked %d, others: %s\n", got, others_get(whole));
    return fd;
}

static void ends(int whole)
{
    printf("%s\n", whole ? "flock" : "fcntl");
    close(opened_and_locked(whole));
    printf("closed: %s\n", others_get(whole));

    int fd = opened_and_locked(whole), copy = dup(fd);
    close(fd);
    printf("one of two copies closed: %s\n", others_get(whole));
    close(copy);
    printf("both closed: %s\n", others_get(whole));

    fd = opened_and_locked(whole);
    close(open(path, O_RDONLY));
    printf("another description closed: %s\n", others_get(whole));
    close(open(path, O_PATH));
    dup2(open("other", O_RDWR | O_CREAT, 0644), fd);
    printf("another file at its number: %s\n", others_get(whole));
    close(fd);

    FILE *stream = fdopen(opened_and_locked(whole), "r+");
    fclose(stream);
    printf("closed as a stream: %s\n", others_get(whole));

    fd = opened_and_locked(whole);
    close_range(fd, fd, 0);
    printf("closed as a range: %s\n", others_get(whole));
}

/* A child that has inherited a lock, or nothing of it, goes on while its parent closes. */
static void inherited(int whole)
{
    int said[2];
    char byte;
    int fd = opened_and_locked(whole);
    if (pipe(said) != 0)
        return;
    fflush(stdout);
    if (fork() == 0) {
        close(said[1]);
        read(said[0], &byte, 1);
        _exit(0);
    }
    close(said[0]);
    close(fd);
    printf("closed, and a child has it open: %s\n", others_get(whole));
    close(said[1]);
    wait(NULL);
    printf("the child has ended: %s\n", others_get(whole));
}

int main(int count, char **given)
{
    if (count < 2 || chdir(given[1]) != 0)
        return 2;
    for (int whole = 0; whole < 2; whole++) {
        ends(whole);
        inherited(whole);
    }
    return 0;
}
