/* Private maps keep what was written to them: moved, made larger, protected otherwise, in threads
   that map and unmap meanwhile. `maps_private FOLDER` prints what it finds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define LONG (16 * PAGE)

static int reads;
static volatile int over;
static long lost;

static int filled(const char *path, char byte, size_t size)
{
    static char bytes[4 * LONG];
    memset(bytes, byte, sizeof bytes);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, bytes, size) != (ssize_t)size) perror("write");
    return fd;
}

static void moved(int fd)
{
    char *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    at[0] = 'X', at[5000] = 'Y';
    char *new = mremap(at, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
    if (new == MAP_FAILED) {
        perror("mremap");
        return;
    }
    printf("moved: %c %c %c %c\n", new[0], new[1], new[5000], new[3 * PAGE]);
    new[1] = 'Z';
    char byte = 0;
    pread(fd, &byte, 1, 1);
    printf("written %c, and the file has %c\n", new[1], byte);
    munmap(new, 4 * PAGE);
}

static void protected(int fd)
{
    char *at = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    mprotect(at, 2 * PAGE, PROT_READ | PROT_WRITE);
    at[0] = 'X', at[PAGE] = 'Y';
    mprotect(at, 2 * PAGE, PROT_READ);
    mprotect(at, PAGE, PROT_READ | PROT_WRITE);
    mprotect(at, 2 * PAGE, PROT_READ | PROT_WRITE);
    printf("protected: %c %c %c\n", at[0], at[1], at[PAGE]);
    munmap(at, 2 * PAGE);
}

/* A map that is known may not be made writable: the file is open for reading. */
static void *maps(void *none)
{
    while (!over) {
        char *at = mmap(NULL, LONG, PROT_READ, MAP_SHARED, reads, 0);
        if (at == MAP_FAILED) {
            perror("mmap");
            break;
        }
        for (int look = 0; look < 3; look++) {
            usleep(1);
            if (mprotect(at, LONG, PROT_READ | PROT_WRITE) != 0) continue;
            __atomic_fetch_add(&lost, 1, __ATOMIC_RELAXED);
            break;
        }
        munmap(at, LONG);
    }
    return none;
}

int main(int count, char **words)
{
    char path[4000];
    if (count < 2) return 2;
    snprintf(path, sizeof path, "%s/private", words[1]);
    int fd = filled(path, 'a', 4 * LONG);
    moved(fd);
    protected(fd);
    reads = open(path, O_RDONLY);
    pthread_t threads[4];
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], NULL, maps, NULL);
    sleep(3);
    over = 1;
    for (int n = 0; n < 4; n++) pthread_join(threads[n], NULL);
    printf("maps that were lost while they were mapped: %ld\n", lost);
    return 0;
}
