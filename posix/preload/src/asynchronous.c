/* Blocks of asynchronous operations: fields that the header keeps for libc's own functions. */

#define _GNU_SOURCE
#include <aio.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What aio_error and aio_return tell of it. */
void engram_aio_done(struct aiocb *block, ssize_t value, int error) {
    block->__return_value = value;
    __atomic_store_n(&block->__error_code, error, __ATOMIC_RELEASE);
}

struct call {
    void (*function)(union sigval);
    union sigval value;
};

static void *called(void *argument) {
    struct call call = *(struct call *)argument;
    free(argument);
    call.function(call.value);
    return NULL;
}

static int in_thread(const struct sigevent *event) {
    pthread_attr_t plain;
    pthread_attr_t *attributes = event->sigev_notify_attributes;
    struct call *call = malloc(sizeof *call);
    if (call == NULL) {
        return -1;
    }
    *call = (struct call){event->sigev_notify_function, event->sigev_value};
    if (attributes == NULL) {
        pthread_attr_init(&plain);
        pthread_attr_setdetachstate(&plain, PTHREAD_CREATE_DETACHED);
    }
    pthread_t thread;
    int failed = pthread_create(&thread, attributes != NULL ? attributes : &plain, called, call);
    if (attributes == NULL) {
        pthread_attr_destroy(&plain);
    }
    if (failed != 0) {
        free(call);
    }
    return failed == 0 ? 0 : -1;
}

/* Says as the program has asked for that an operation is done. */
int engram_aio_notify(const struct sigevent *event) {
    if (event->sigev_notify == SIGEV_THREAD) {
        return in_thread(event);
    }
    if (event->sigev_notify != SIGEV_SIGNAL) {
        return 0;
    }
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = event->sigev_signo;
    info.si_code = SI_ASYNCIO;
    info.si_pid = (pid_t)syscall(SYS_getpid);
    info.si_uid = getuid();
    info.si_value = event->sigev_value;
    return (int)syscall(SYS_rt_sigqueueinfo, info.si_pid, info.si_signo, &info);
}
