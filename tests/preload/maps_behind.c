/* Maps of values that were put whole, of any length: behind the end are zeros, and what is stored
   there changes nobody. `maps_behind FOLDER COUNT` looks at b0, b1 ... of letters A, B ... */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096

static void look(const char *folder, int number)
{
    static const struct {
        const char *what;
        int protection, flags;
    } ways[] = {
        {"private", PROT_READ, MAP_PRIVATE},
        {"shared", PROT_READ, MAP_SHARED},
        {"written", PROT_READ | PROT_WRITE, MAP_SHARED},
    };
    char path[4000];
    snprintf(path, sizeof path, "%s/b%d", folder, number);
    for (int way = 0; way < 3; way++) {
        int fd = open(path, way == 2 ? O_RDWR : O_RDONLY);
        struct stat about;
        if (fd < 0 || fstat(fd, &about) != 0) {
            perror(path);
            return;
        }
        size_t size = about.st_size, whole = (size + PAGE - 1) / PAGE * PAGE;
        char *at = mmap(NULL, size, ways[way].protection, ways[way].flags, fd, 0);
        close(fd);
        if (at == MAP_FAILED) {
            perror(ways[way].what);
            continue;
        }
        for (size_t place = 0; place < whole; place++) {
            char expected = place < size ? 'A' + number : 0;
            if (at[place] == expected) continue;
            printf("b%d %s: byte %zu of %zu is %d\n", number, ways[way].what, place, size, at[place]);
            break;
        }
        if (way == 2) memset(at + size, '!', whole - size);
        munmap(at, size);
    }
}

int main(int count, char **words)
{
    if (count < 3) return 2;
    int many = atoi(words[2]);
    for (int turn = 0; turn < 2; turn++)
        for (int number = 0; number < many; number++) look(words[1], number);
    printf("looked at %d\n", many);
    return 0;
}
