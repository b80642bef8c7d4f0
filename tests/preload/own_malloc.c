/* A program with a malloc of its own, as those have that bring jemalloc or mimalloc: what the C
   library or the preload library gives it, it frees by its own free, which ends it where that is
   not its own memory. `own_malloc FOLDER` prints what it finds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN UINT64_C(0x6f776e206d656d21)

struct head {
    uint64_t own;
    size_t size;
};

static char memory[64 << 20];
static _Atomic(size_t) used;

static void *taken(size_t size, size_t alignment)
{
    size_t room = sizeof(struct head) + size + alignment + 64;
    size_t at = __atomic_fetch_add(&used, room, __ATOMIC_RELAXED);
    if (at + room > sizeof memory) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t from = (uintptr_t)memory + at + sizeof(struct head);
    from = (from + alignment - 1) / alignment * alignment;
    struct head *head = (struct head *)from - 1;
    head->own = OWN;
    head->size = size;
    return (void *)from;
}

static struct head *head_of(void *at)
{
    struct head *head = (struct head *)at - 1;
    uintptr_t place = (uintptr_t)at - (uintptr_t)memory;
    if (place < sizeof(struct head) || place > sizeof memory || head->own != OWN) {
        static const char wrong[] = "what is freed is not this program's own\n";
        write(2, wrong, sizeof wrong - 1);
        _exit(3);
    }
    return head;
}

void *malloc(size_t size)
{
    return taken(size, 16);
}

void free(void *at)
{
    if (at) head_of(at);
}

void *calloc(size_t count, size_t each)
{
    return taken(count * each, 16);
}

void *realloc(void *at, size_t size)
{
    void *new = taken(size, 16);
    if (at && new) {
        size_t before = head_of(at)->size;
        memcpy(new, at, before < size ? before : size);
    }
    return new;
}

int posix_memalign(void **to, size_t alignment, size_t size)
{
    *to = taken(size, alignment);
    return *to ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return taken(size, alignment);
}

static int each(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int main(int count, char **words)
{
    if (count < 2 || chdir(words[1]) != 0) return 2;
    size_t begin = strlen(words[1]);
    FILE *file = fopen("text", "w+");
    fprintf(file, "one\ntwo and more\n");
    rewind(file);
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, file) > 0) printf("%s", line);
    free(line);
    fclose(file);
    char *here = getcwd(NULL, 0), *whole = realpath("text", NULL);
    printf("%d %s\n", strcmp(here, words[1]), whole + begin);
    free(here);
    free(whole);
    struct dirent **found;
    int many = scandir(".", &found, each, alphasort);
    for (int at = 0; at < many; at++) {
        printf("%s\n", found[at]->d_name);
        free(found[at]);
    }
    free(found);
    fflush(stdout);
    int code = system("cat text; ls");
    printf("%d\n", code);
    return 0;
}
