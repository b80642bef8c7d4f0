/* Maps of a file: shared, private, for reading, cut, in a child, without a name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static char path[4000];

static char *map(size_t size, int protection, int flags, int fd, off_t offset)
{
    char *at = mmap(NULL, size, protection, flags, fd, offset);
    if (at == MAP_FAILED) {
        printf("mmap: %s\n", strerror(errno));
        return NULL;
    }
    return at;
}

/* What becomes of a child that touches a byte. */
static int touched(char *at)
{
    int status = 0;
    fflush(stdout);
    if (fork() == 0) {
        *(volatile char *)at += 1;
        _exit(0);
    }
    wait(&status);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* A map shows what is written to the file, and the file what is written to the map, however small
   it is and whoever writes; also after its last name has gone. */
static void small_files(const char *folder, int nameless)
{
    static const size_t sizes[] = {1, 600, 1024, 1025, PAGE};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        snprintf(path, sizeof path, "%s/small%zu", folder, n);
        int fd = open(path, O_RDWR | O_CREAT, 0644);
        if (ftruncate(fd, sizes[n]) != 0)
            return;
        int reads = open(path, O_RDONLY);
        if (nameless)
            unlink(path);
        char *seen = map(sizes[n], PROT_READ, MAP_SHARED, reads, 0);
        char *at = map(sizes[n], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (!seen || !at)
            continue;
        at[0] = 'm';
        char byte = 0;
        pread(fd, &byte, 1, 0);
        printf("%zu bytes: the file has %c, another map %c\n", sizes[n], byte, seen[0]);
        pwrite(fd, "w", 1, 0);
        printf("the maps have %c and %c\n", at[0], seen[0]);
        printf("%lld bytes\n", (long long)lseek(fd, 0, SEEK_END));
    }
}

int main(int count, char **words)
{
    char bytes[6] = "";
    (void)count;
    snprintf(path, sizeof path, "%s/mapped", words[1]);
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    printf("ftruncate %d\n", ftruncate(fd, 3 * PAGE + 100));
    char *all = map(8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(all + 5000, "hello");
    printf("pread %zd %s\n", pread(fd, bytes, 5, 5000), bytes);
    printf("pwrite %zd\n", pwrite(fd, "HELLO", 5, 9000));
    printf("seen %.5s, behind the end %d\n", all + 9000, all[3 * PAGE + 100]);
    printf("beyond the last page: signal %d\n", touched(all + 5 * PAGE) == SIGBUS);
    char *own = map(PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, PAGE);
    own[0] = 'z';
    printf("private %c, shared %d\n", own[5000 - PAGE], all[PAGE]);
    char *seen = map(2 * PAGE, PROT_READ, MAP_SHARED, fd, PAGE);
    all[PAGE + 1] = 'k';
    printf("shared for reading %c\n", seen[1]);
    char *kept = map(PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE);
    printf("mprotect %d\n", mprotect(kept, PAGE, PROT_READ | PROT_WRITE));
    kept[2] = 'q';
    printf("private %c, shared %d\n", kept[2], all[PAGE + 2]);
    fflush(stdout);
    if (fork() == 0) {
        all[PAGE + 3] = 'c';
        _exit(0);
    }
    wait(NULL);
    printf("a child's %c\n", seen[3]);
    printf("munmap %d, what is left %c\n", munmap(all + PAGE, PAGE), all[5000 - 5000] ? 'x' : '0');
    printf("msync %d\n", msync(all, PAGE, MS_SYNC));
    char *more = mremap(seen, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE);
    printf("mremap %s\n", more == MAP_FAILED ? strerror(errno) : more + 5000 - PAGE);
    printf("unlink %d\n", unlink(path));
    char *nameless = map(PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, PAGE);
    printf("nameless %s\n", nameless + 5000 - PAGE);
    int reads = open(words[1], O_RDONLY);
    map(PAGE, PROT_READ, MAP_SHARED, reads, 0);
    close(reads);
    map(0, PROT_READ, MAP_SHARED, fd, 0);
    map(PAGE, PROT_READ, MAP_SHARED, fd, 17);
    snprintf(path, sizeof path, "%s/kept", words[1]);
    int writes = open(path, O_WRONLY | O_CREAT, 0644);
    printf("write %zd\n", write(writes, "abc", 3));
    map(PAGE, PROT_READ, MAP_SHARED, writes, 0);
    close(writes);
    reads = open(path, O_RDONLY);
    map(PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, reads, 0);
    char *small = map(PAGE, PROT_READ, MAP_SHARED, reads, 0);
    printf("small %s\n", small);
    printf("mprotect %d %s\n", mprotect(small, PAGE, PROT_READ | PROT_WRITE), strerror(errno));
    small_files(words[1], 0);
    small_files(words[1], 1);
    return 0;
}
