/* What programs set signals to do, and are told of it: the same as where nobody stands between. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static volatile int runs, value, blocked, stacked;
static sigjmp_buf back;
static char stack[65536];

static void plain(int number) {
    runs += number == SIGUSR1 || number == SIGUSR2;
}

static void told(int number, siginfo_t *info, void *context) {
    sigset_t now;
    char here;
    (void)number;
    runs++;
    value = info->si_code == SI_QUEUE && context != NULL ? info->si_value.sival_int : -1;
    sigprocmask(SIG_SETMASK, NULL, &now);
    blocked = sigismember(&now, SIGUSR1) * 10 + sigismember(&now, SIGUSR2);
    stacked = &here >= stack && &here < stack + sizeof stack;
}

static void jumps(int number) {
    siglongjmp(back, number);
}

static const char *name_of(void (*handler)(int)) {
    return handler == plain                   ? "plain"
           : handler == (void (*)(int))told ? "told"
           : handler == SIG_DFL               ? "default"
           : handler == SIG_IGN               ? "ignored"
           : handler == SIG_ERR               ? "error"
                                              : "another";
}

static void set(void) {
    struct sigaction action = {.sa_handler = plain}, old;
    sigaddset(&action.sa_mask, SIGUSR2);
    action.sa_flags = SA_RESTART;
    printf("first: %d\n", sigaction(SIGUSR1, &action, NULL));
    raise(SIGUSR1);
    printf("ran %d times\n", runs);
    action.sa_sigaction = told;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGUSR1, &action, &old);
    printf("before: %s, flags %x, mask %d\n", name_of(old.sa_handler),
           old.sa_flags & (SA_RESTART | SA_SIGINFO | SA_ONSTACK | SA_RESETHAND),
           sigismember(&old.sa_mask, SIGUSR2));
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 4711});
    printf("told %d, blocked %d, on its stack %d\n", value, blocked, stacked);
    sigaction(SIGUSR1, NULL, &old);
    printf("now: %s, flags %x\n", name_of(old.sa_handler), old.sa_flags & SA_SIGINFO);
    printf("signal: %s\n", name_of(signal(SIGUSR1, plain)));
    printf("again: %s\n", name_of(signal(SIGUSR1, SIG_IGN)));
    raise(SIGUSR1);
    printf("ignored: %s\n", name_of(signal(SIGUSR1, SIG_DFL)));
    printf("of none: %s\n", name_of(signal(SIGKILL, plain)));
    printf("of no number: %d\n", sigaction(1000, &action, NULL));
    runs = 0;
    printf("sysv: %s\n", name_of(sysv_signal(SIGUSR1, plain)));
    raise(SIGUSR1);
    printf("once %d: %s\n", runs, name_of(signal(SIGUSR1, SIG_DFL)));
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;
    sigaction(SIGUSR2, &action, NULL);
    sigaction(SIGUSR2, NULL, &old);
    printf("once: %x\n", old.sa_flags & (SA_SIGINFO | SA_RESETHAND));
    printf("sigset: %s\n", name_of(sigset(SIGUSR2, plain)));
    printf("sigset: %s\n", name_of(sigset(SIGUSR2, SIG_DFL)));
}

/* A lock that is waited for, in a child; what a signal makes of the wait. */
static int waits(const char *path, int flags) {
    int fd = open(path, O_RDWR | O_CREAT, 0644), status, ends[2];
    char byte = 0;
    pipe(ends);
    flock(fd, LOCK_EX);
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = plain, .sa_flags = flags};
        int own = open(path, O_RDWR);
        sigaction(SIGUSR1, &action, NULL);
        write(ends[1], &byte, 1);
        int done = flock(own, LOCK_EX);
        _exit(done == 0 ? 1 : errno == EINTR ? 2 : 3);
    }
    read(ends[0], &byte, 1);
    for (int at = 0; at < 5; at++) {
        usleep(20000);
        kill(child, SIGUSR1);
    }
    flock(fd, LOCK_UN);
    waitpid(child, &status, 0);
    close(fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A fault of the program's own, whose handler leaves by a jump. */
static void fault(const char *path) {
    struct sigaction action = {.sa_handler = jumps};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    ftruncate(fd, 100);
    char *bytes = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
    int number = sigsetjmp(back, 1);
    if (number == 0) *(volatile char *)bytes = 'x';
    printf("stored where nothing may be: %d\n", number == SIGSEGV);
    number = sigsetjmp(back, 1);
    if (number == 0) number = ((volatile char *)bytes)[4096];
    printf("read behind the end: %d\n", number == SIGBUS);
    close(fd);
}

int main(int argc, char **argv) {
    char path[4200];
    if (argc != 2) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    snprintf(path, sizeof path, "%s/file", argv[1]);
    set();
    printf("restarted: %d\n", waits(path, SA_RESTART));
    printf("interrupted: %d\n", waits(path, 0));
    fault(path);
    return 0;
}
