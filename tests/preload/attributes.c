/* Extended attributes, of files and folders below the folder that is given. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static char large[70000];

static void told(const char *what, ssize_t result) {
    printf("%s: %zd %d\n", what, result, result < 0 ? errno : 0);
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list(const char *path) {
    char names[4096], *name[64];
    int found = 0;
    ssize_t asked = listxattr(path, NULL, 0), size = listxattr(path, names, sizeof names);
    printf("%s has %zd bytes of names, %d\n", path, size, asked == size);
    for (char *at = names; at < names + size; at += strlen(at) + 1) name[found++] = at;
    qsort(name, found, sizeof *name, by_text);
    for (int i = 0; i < found; i++) printf("  %s\n", name[i]);
}

static void get(const char *path, const char *name) {
    char value[64] = "";
    ssize_t asked = getxattr(path, name, NULL, 0);
    ssize_t size = getxattr(path, name, value, sizeof value);
    int code = size < 0 ? errno : 0;
    printf("%s of %s: %zd %zd %d \"", name, path, asked, size, code);
    for (ssize_t i = 0; i < size; i++) printf(value[i] >= ' ' ? "%c" : "\\%d", value[i]);
    puts("\"");
}

static void all(const char *path) {
    char value[64];
    told("set", setxattr(path, "user.one", "first", 5, 0));
    get(path, "user.one");
    told("set again", setxattr(path, "user.one", "second one", 10, 0));
    get(path, "user.one");
    told("made", setxattr(path, "user.one", "x", 1, XATTR_CREATE));
    told("replaced", setxattr(path, "user.one", "third", 5, XATTR_REPLACE));
    told("replaced none", setxattr(path, "user.none", "x", 1, XATTR_REPLACE));
    told("made new", setxattr(path, "user.two", "2", 1, XATTR_CREATE));
    told("no such flag", setxattr(path, "user.two", "2", 1, 8));
    told("nothing", setxattr(path, "user.nothing", "", 0, 0));
    told("bytes", setxattr(path, "user.bytes", "a\0b\377", 4, 0));
    get(path, "user.one");
    get(path, "user.two");
    get(path, "user.nothing");
    get(path, "user.none");
    told("bytes", getxattr(path, "user.bytes", value, sizeof value));
    printf("same: %d\n", memcmp(value, "a\0b\377", 4));
    told("too small", getxattr(path, "user.one", value, 2));
    told("just fits", getxattr(path, "user.one", value, 5));
    list(path);
    told("too small for names", listxattr(path, value, 3));
    told("removed", removexattr(path, "user.one"));
    told("removed again", removexattr(path, "user.one"));
    list(path);
}

static void by_descriptor(void) {
    char value[64];
    int fd = open("file", O_RDONLY);
    told("fset", fsetxattr(fd, "user.fd", "by fd", 5, 0));
    told("fget", fgetxattr(fd, "user.fd", value, sizeof value));
    told("fget of none", fgetxattr(fd, "user.none", value, sizeof value));
    told("flist", flistxattr(fd, NULL, 0));
    get("file", "user.fd");
    told("fremove", fremovexattr(fd, "user.fd"));
    told("fremove again", fremovexattr(fd, "user.fd"));
    close(fd);
    told("fget of none", fgetxattr(fd, "user.fd", value, sizeof value));
    fd = open("folder", O_PATH);
    told("fget by O_PATH", fgetxattr(fd, "user.two", value, sizeof value));
    told("flist by O_PATH", flistxattr(fd, value, sizeof value));
    told("fset by O_PATH", fsetxattr(fd, "user.two", "x", 1, 0));
    close(fd);
    fd = open("folder", O_RDONLY);
    told("fget of a folder", fgetxattr(fd, "user.two", value, sizeof value));
    close(fd);
}

static void by_link(void) {
    char value[64];
    symlink("folder", "link");
    told("through a link", getxattr("link", "user.two", value, sizeof value));
    told("of a link", lgetxattr("link", "user.two", value, sizeof value));
    told("set of a link", lsetxattr("link", "user.two", "x", 1, 0));
    told("names of a link", llistxattr("link", value, sizeof value));
    told("removed of a link", lremovexattr("link", "user.two"));
    told("lset of a folder", lsetxattr("folder", "user.l", "x", 1, 0));
    told("lget of a folder", lgetxattr("folder", "user.l", value, sizeof value));
    told("lremove of a folder", lremovexattr("folder", "user.l"));
    mkfifo("fifo", 0644);
    told("of a FIFO", setxattr("fifo", "user.two", "x", 1, 0));
    told("of a FIFO", getxattr("fifo", "user.two", value, sizeof value));
}

static void refused(void) {
    char name[400] = "user.";
    char value[8];
    memset(name + 5, 'n', 300);
    told("of none", getxattr("none", "user.one", value, sizeof value));
    told("set of none", setxattr("none", "user.one", "x", 1, 0));
    told("names of none", listxattr("none", value, sizeof value));
    told("removed of none", removexattr("none", "user.one"));
    told("below a file", getxattr("plain/x", "user.one", value, sizeof value));
    told("no class", setxattr("plain", "one", "x", 1, 0));
    told("no class", getxattr("plain", "one", value, sizeof value));
    told("no name", setxattr("plain", "", "x", 1, 0));
    told("class alone", setxattr("plain", "user.", "x", 1, 0));
    told("long name", setxattr("plain", name, "x", 1, 0));
    told("long value", setxattr("plain", "user.large", large, 65537, 0));
    told("longest value", setxattr("plain", "user.large", large, 65536, 0));
    told("longest value", getxattr("plain", "user.large", large, sizeof large));
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    close(open("file", O_CREAT | O_WRONLY, 0644));
    close(open("plain", O_CREAT | O_WRONLY, 0644));
    mkdir("folder", 0755);
    all("file");
    all("folder");
    by_descriptor();
    by_link();
    refused();
    return 0;
}
