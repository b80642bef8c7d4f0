/* What is allowed of files, keys by files, and the working folder's path. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* Those that do not depend on the kind of the file system. */
static const int names[] = {_PC_MAX_CANON, _PC_MAX_INPUT, _PC_NAME_MAX, _PC_PATH_MAX, _PC_PIPE_BUF,
                            _PC_CHOWN_RESTRICTED, _PC_NO_TRUNC, _PC_VDISABLE, _PC_ASYNC_IO,
                            _PC_SYNC_IO, _PC_PRIO_IO, _PC_SYMLINK_MAX, _PC_2_SYMLINKS, 99};

static void limits(const char *path) {
    int fd = open(path, O_RDONLY);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        errno = 0;
        long limit = pathconf(path, names[i]);
        int code = errno;
        errno = 0;
        long open = fpathconf(fd, names[i]);
        printf("%s %d: %ld %d, %ld %d\n", path, names[i], limit, code, open, errno);
    }
    printf("links %d, bits %d\n", pathconf(path, _PC_LINK_MAX) >= 8,
           fpathconf(fd, _PC_FILESIZEBITS) >= 32);
    close(fd);
}

int main(int argc, char **argv) {
    char room[4097];
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    mkdir("folder", 0755);
    close(open("folder/file", O_CREAT | O_WRONLY, 0644));
    close(open("other", O_CREAT | O_WRONLY, 0644));
    symlink("folder/file", "link");
    limits("folder");
    limits("folder/file");
    errno = 0;
    printf("of none: %ld", pathconf("none", _PC_NAME_MAX));
    printf(" %d\n", errno);
    key_t key = ftok("folder/file", 7);
    struct stat stat;
    lstat("folder/file", &stat);
    printf("key: %d %d %d\n", key == ftok("link", 7), key != ftok("other", 7),
           (unsigned)key >> 24);
    printf("of its number: %d\n", (key & 0xffff) == (key_t)(stat.st_ino & 0xffff));
    printf("key of none: %d", ftok("none", 7));
    printf(" %d\n", errno);
    printf("getwd: %d\n", strcmp(getwd(room), argv[1]));
    chdir("folder");
    printf("getwd: %s\n", getwd(room) + strlen(argv[1]));
    return 0;
}
