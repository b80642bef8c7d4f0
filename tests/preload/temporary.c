/* Files and names that nobody has yet: below the folder that is given. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* Whether a name is the template, but for its blank. */
static int is_filled(const char *name, const char *template, int suffix) {
    size_t length = strlen(template), blank = length - suffix - 6;
    return strlen(name) == length && memcmp(name, template, blank) == 0 &&
           strcmp(name + length - suffix, template + length - suffix) == 0 &&
           memcmp(name + blank, "XXXXXX", 6) != 0 &&
           strspn(name + blank, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") >=
               6;
}

static void file(const char *what, const char *template, const char *name, int fd, int suffix) {
    struct stat stat;
    if (fd < 0) {
        printf("%s %s: %d %d\n", what, template, fd, errno);
        return;
    }
    fstat(fd, &stat);
    printf("%s %s: filled %d, mode %o, size %ld, flags %o, cloexec %d, named %d, written %zd\n",
           what, template, is_filled(name, template, suffix), stat.st_mode, (long)stat.st_size,
           fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_SYNC), fcntl(fd, F_GETFD),
           access(name, F_OK) == 0, write(fd, "x", 1));
    close(fd);
}

static void files(const char *template, int suffix) {
    char name[400];
    strcpy(name, template);
    file("mkstemps", template, name, mkstemps(name, suffix), suffix);
    strcpy(name, template);
    file("mkostemps", template, name, mkostemps(name, suffix, O_APPEND | O_CLOEXEC), suffix);
    if (suffix != 0) return;
    strcpy(name, template);
    file("mkstemp", template, name, mkstemp(name), 0);
    strcpy(name, template);
    file("mkostemp", template, name, mkostemp(name, O_CLOEXEC), 0);
    strcpy(name, template);
    errno = 0;
    char *made = mkdtemp(name);
    struct stat stat;
    if (made == NULL) {
        printf("mkdtemp %s: %d\n", template, errno);
    } else {
        lstat(made, &stat);
        printf("mkdtemp %s: %d, mode %o, same %d\n", template, is_filled(name, template, 0),
               stat.st_mode, made == name);
    }
    strcpy(name, template);
    errno = 0;
    char *found = mktemp(name);
    printf("mktemp %s: \"%s\" %d same %d\n", template,
           *name == 0 || is_filled(name, template, 0) ? "" : name, *name == 0 ? errno : 0,
           found == name);
}

static void many(void) {
    struct stat stat;
    int made = 0;
    for (int i = 0; i < 300; i++) {
        char name[] = "many-XXXXXX";
        int fd = mkstemp(name);
        made += fd >= 0 && lstat(name, &stat) == 0;
        close(fd);
    }
    printf("%d made\n", made);
}

static void named(const char *top) {
    char whole[4096], *name;
    snprintf(whole, sizeof whole, "%s/sub", top);
    name = tempnam(whole, "prefixes");
    printf("tempnam: %d\n", strncmp(name, whole, strlen(whole)) == 0 &&
                                strncmp(name + strlen(whole), "/prefi", 6) == 0 &&
                                strlen(name) == strlen(whole) + 12 && access(name, F_OK) != 0);
    free(name);
    snprintf(whole, sizeof whole, "%s/sub///", top);
    name = tempnam(whole, NULL);
    printf("tempnam: %s\n", strncmp(name + strlen(top), "/sub/file", 9) == 0 ? "" : name);
    free(name);
    name = tempnam("none", "");
    printf("tempnam of none: %.5s %zu\n", name, strlen(name));
    free(name);
    setenv("TMPDIR", top, 1);
    name = tempnam(whole, "x");
    printf("tempnam by TMPDIR: %s\n", strncmp(name + strlen(top), "/x", 2) == 0 ? "" : name);
    free(name);
    setenv("TMPDIR", "/none", 1);
    name = tempnam("sub", "x");
    printf("tempnam: %.5s %zu\n", name, strlen(name));
    free(name);
    char own[L_tmpnam];
    name = tmpnam(own);
    printf("tmpnam: %d %.9s\n", name == own, own);
    printf("tmpnam: %.9s\n", tmpnam(NULL));
    printf("tmpnam_r: %p %d\n", (void *)tmpnam_r(NULL), tmpnam_r(own) == own);
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    umask(022);
    mkdir("sub", 0755);
    close(open("taken", O_CREAT | O_WRONLY, 0644));
    const char *template[] = {"XXXXXX", "a-XXXXXX", "sub/XXXXXXXXX", "sub/../bXXXXXX", "XXXXX",
                              "", "aXXXXXXb", "none/XXXXXX", "taken/XXXXXX", "xXXXXX"};
    for (size_t i = 0; i < sizeof template / sizeof *template; i++) files(template[i], 0);
    files("aXXXXXX.txt", 4);
    files("sub/XXXXXX.c", 2);
    files("XXXXXX.c", 3);
    files("XXXXXX.c", 20);
    files("XXXXXX.c", -1);
    many();
    umask(0077);
    files("private-XXXXXX", 0);
    named(argv[1]);
    return 0;
}
