/* A program with threads tries to become another one, and goes on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop, alarms;
static int failed;

/* A number goes from a file below the prefix to one of memory, again and again. */
static void *closes_and_opens(void *given)
{
    while (!stop) {
        int fd = open("there", O_RDONLY);
        close(fd);
        fd = memfd_create("elsewhere", 0);
        if (pwrite(fd, "data", 4, 0) != 4) failed = errno;
        close(fd);
    }
    return given;
}

/* Whether another process is kept from locking what this one has locked. */
static int is_locked(int fd)
{
    int status = 0;
    if (fork() == 0) {
        struct flock lock = {.l_type = F_WRLCK};
        _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK);
    }
    wait(&status);
    return WEXITSTATUS(status);
}

/* Where the kernel says that a number is, and how it is open. */
static const char *told(int fd)
{
    static char text[256];
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY);
    text[read(info, text, sizeof text - 1)] = 0;
    close(info);
    return text;
}

static void count(int signal)
{
    (void)signal;
    alarms++;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 2 || chdir(argv[1]) != 0) return 1;
    if (argc > 2) {
        int fd = atoi(argv[2]), other = open("there", O_RDONLY);
        printf("as another: %ld, %d, %d\n", lseek(fd, 0, SEEK_CUR), flock(fd, LOCK_SH | LOCK_NB),
               flock(other, LOCK_SH | LOCK_NB));
        if (argc > 3) printf("locked: %d\n", is_locked(atoi(argv[3])));
        sigset_t mask;
        sigprocmask(0, NULL, &mask);
        printf("blocked: %d %d\n", sigismember(&mask, SIGUSR1), sigismember(&mask, SIGALRM));
        return 0;
    }
    int fd = open("there", O_RDWR | O_CREAT, 0600);
    write(fd, "line\n", 5);
    flock(fd, LOCK_EX);
    pthread_t thread;
    pthread_create(&thread, NULL, closes_and_opens, NULL);
    char *before = strdup(told(fd));
    execl("/dev/null", "null", NULL);
    perror("/dev/null");
    execl("there", "there", NULL);
    perror("there");
    execlp("nowhere", "nowhere", NULL);
    perror("nowhere");
    printf("the number is %s\n", strcmp(told(fd), before) ? "another" : "what it was");
    signal(SIGALRM, count);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {0};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 300 || alarms < 20; i++) execl("/dev/null", "null", NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    stop = 1;
    pthread_join(thread, NULL);
    puts(strerror(failed));
    printf("%zd %zd\n", pwrite(fd, "more", 4, 0), write(fd, "and more\n", 9));
    stop = 0;
    pthread_create(&thread, NULL, closes_and_opens, NULL);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    char number[16], of_memory[16];
    sprintf(number, "%d", fd);
    fflush(stdout);
    if (fork() == 0) {
        struct flock lock = {.l_type = F_WRLCK};
        int kept = memfd_create("kept", 0);
        fcntl(kept, F_SETLK, &lock);
        sprintf(of_memory, "%d", kept);
        pthread_create(&thread, NULL, closes_and_opens, NULL);
        execl(argv[0], argv[0], argv[1], number, of_memory, NULL);
    }
    wait(NULL);
    execl(argv[0], argv[0], argv[1], number, NULL);
    return 1;
}
