/* Writes until the pool is full, and says how that is told. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char path[4096];
    static char block[1 << 20];
    snprintf(path, sizeof path, "%s/big", argv[argc - 1]);
    memset(block, 'x', sizeof block);
    FILE *f = fopen(path, "w");
    errno = 0;
    while (fwrite(block, 1, sizeof block, f) == sizeof block) {
    }
    printf("ENOSPC %d error %d\n", errno == ENOSPC, ferror(f) != 0);
    clearerr(f);
    fputs("some more", f);
    errno = 0;
    int done = fflush(f);
    printf("flush %d\n", done == 0 || errno == ENOSPC);
    fclose(f);
    unlink(path);
    f = fopen(path, "w");
    fputs("room again", f);
    printf("close %d\n", fclose(f));
    return 0;
}
