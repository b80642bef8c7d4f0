/* Asynchronous operations, waited for. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static sem_t told;
static volatile int value;

static void in_thread(union sigval given) {
    value = given.sival_int;
    sem_post(&told);
}

static void by_signal(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    value = info->si_code == SI_ASYNCIO ? info->si_value.sival_int : -1;
}

static void await(struct aiocb *block) {
    const struct aiocb *list[] = {block};
    while (aio_error(block) == EINPROGRESS) {
        aio_suspend(list, 1, NULL);
    }
}

static struct aiocb block_of(int fd, void *memory, size_t size, off_t offset) {
    struct aiocb block;
    memset(&block, 0, sizeof block);
    block.aio_fildes = fd;
    block.aio_buf = memory;
    block.aio_nbytes = size;
    block.aio_offset = offset;
    block.aio_sigevent.sigev_notify = SIGEV_NONE;
    return block;
}

static void tell(const char *what, int done, struct aiocb *block) {
    int why = errno;
    if (done == 0) {
        await(block);
        int error = aio_error(block);
        printf("%s: error %d return %zd\n", what, error, aio_return(block));
    } else {
        printf("%s: %d errno %d\n", what, done, why);
    }
}

int main(int argc, char **argv) {
    char path[4096];
    snprintf(path, sizeof path, "%s/file", argv[argc - 1]);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    char text[] = "hello, world", back[32] = "";
    struct aiocb block = block_of(fd, text, 12, 5);
    tell("write", aio_write(&block), &block);
    block = block_of(fd, back, sizeof back, 7);
    tell("read", aio_read(&block), &block);
    printf("'%s' offset %ld\n", back, (long)lseek(fd, 0, SEEK_CUR));
    block = block_of(fd, NULL, 0, 0);
    tell("sync", aio_fsync(O_SYNC, &block), &block);
    tell("data sync", aio_fsync(O_DSYNC, &block), &block);
    tell("no sync", aio_fsync(12345, &block), &block);
    block = block_of(fd, back, 1, -1);
    tell("negative", aio_read(&block), &block);
    block = block_of(fd, back, 1, 0);
    block.aio_reqprio = -1;
    tell("priority", aio_read(&block), &block);
    int reader = open(path, O_RDONLY);
    block = block_of(reader, text, 1, 0);
    tell("write to a reader", aio_write(&block), &block);
    printf("cancel %d\n", aio_cancel(reader, NULL) == AIO_ALLDONE);
    sem_init(&told, 0, 0);
    block = block_of(fd, text, 3, 0);
    block.aio_sigevent.sigev_notify = SIGEV_THREAD;
    block.aio_sigevent.sigev_notify_function = in_thread;
    block.aio_sigevent.sigev_value.sival_int = 77;
    tell("told in a thread", aio_write(&block), &block);
    sem_wait(&told);
    printf("value %d\n", value);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = by_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    sigaction(SIGUSR1, &action, NULL);
    block.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
    block.aio_sigevent.sigev_signo = SIGUSR1;
    block.aio_sigevent.sigev_value.sival_int = 88;
    value = 0;
    tell("told by a signal", aio_write(&block), &block);
    for (int i = 0; i < 1000 && value == 0; i++) {
        usleep(1000);
    }
    printf("value %d\n", value);
    int pipe_[2];
    pipe(pipe_);
    struct aiocb one = block_of(fd, "ONE", 3, 20), two = block_of(pipe_[1], "TWO", 3, 0);
    struct aiocb three = block_of(fd, back, 3, 0), none = block_of(fd, NULL, 0, 0);
    one.aio_lio_opcode = two.aio_lio_opcode = LIO_WRITE;
    three.aio_lio_opcode = LIO_READ;
    none.aio_lio_opcode = LIO_NOP;
    struct aiocb *list[] = {&one, &two, NULL, &none, &three};
    int done = lio_listio(LIO_WAIT, list, 5, NULL);
    printf("list %d: %zd %zd %zd\n", done, aio_return(&one), aio_return(&two), aio_return(&three));
    one.aio_fildes = reader;
    struct aiocb *failing[] = {&one, &three};
    errno = 0;
    done = lio_listio(LIO_WAIT, failing, 2, NULL);
    printf("failing list %d errno %d: error %d\n", done, errno, aio_error(&one));
    struct sigevent event = {.sigev_notify = SIGEV_THREAD};
    event.sigev_notify_function = in_thread;
    event.sigev_value.sival_int = 99;
    one.aio_fildes = fd;
    done = lio_listio(LIO_NOWAIT, failing, 2, &event);
    sem_wait(&told);
    printf("list told %d %d\n", done, value);
    errno = 0;
    done = lio_listio(17, failing, 2, NULL);
    printf("no mode %d errno %d\n", done, errno);
    return 0;
}
