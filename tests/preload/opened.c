/* Paths that name what is open, and the working folder: below the folder that is given. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char top[4096];

static void say(const char *what, long long code)
{
    printf("%s: %lld %s\n", what, code, code < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

static char *of(const char *before, int fd, const char *behind)
{
    static char paths[8][200];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 200, "%s/fd/%d%s", before, fd, behind);
    return path;
}

static void says(const char *what, int fd)
{
    char bytes[100] = "";
    ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - 1);
    say(what, size);
    if (size >= 0)
        printf("  \"%s\", flags %o\n", bytes, fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    close(fd);
}

static void leads(const char *what, const char *path)
{
    char target[4096];
    ssize_t size = readlink(path, target, sizeof target - 1);
    say(what, size < 0 ? size : 0);
    if (size < 0)
        return;
    target[size] = 0;
    int is_here = strncmp(target, top, strlen(top)) == 0;
    printf("  %s\n", is_here ? target + strlen(top) : target);
}

static void looks(const char *what, const char *path)
{
    struct stat by_stat, by_itself;
    say(what, stat(path, &by_stat));
    int is_file = S_ISREG(by_stat.st_mode);
    printf("  %o, %lld bytes, %d names\n", by_stat.st_mode, is_file ? (long long)by_stat.st_size : 0,
           is_file ? (int)by_stat.st_nlink : 0);
    say("by itself", lstat(path, &by_itself));
    printf("  a link: %d\n", S_ISLNK(by_itself.st_mode));
}

static void file(int fd)
{
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    struct stat now;
    struct statfs system, known;
    const char *path = of("/proc/self", fd, "");
    looks("file", path);
    looks("by /dev", of("/dev", fd, ""));
    leads("leads", path);
    leads("leads by /dev", of("/dev", fd, ""));
    says("read", open(path, O_RDONLY));
    says("by thread-self", open(of("/proc/thread-self", fd, ""), O_RDONLY | O_CLOEXEC));
    char own[40];
    snprintf(own, sizeof own, "/proc/%d", getpid());
    says("by its number", open(of(own, fd, ""), O_RDWR));
    says("by syscall", syscall(SYS_openat, AT_FDCWD, of("/dev", fd, ""), O_RDONLY));
    says("not followed", open(path, O_RDONLY | O_NOFOLLOW));
    says("new", open(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
    says("a folder", open(path, O_RDONLY | O_DIRECTORY));
    says("of a file", open(of("/dev", fd, "/in"), O_RDONLY));
    says("with a slash", open(of("/dev", fd, "/"), O_RDONLY));
    says("no number", open("/dev/fd/x", O_RDONLY));
    const char *none[] = {"/dev/fd/777", "/dev/stdinner", "/dev/fd/", "/dev/fd/00", "/dev/fd/0x",
                          "/dev/fd/99999999999", "/proc/self/cwds", "/proc/self/fd/0x"};
    for (size_t each = 0; each < sizeof none / sizeof *none; each++)
        say(none[each], access(none[each], F_OK));
    int more = open(path, O_WRONLY | O_APPEND);
    say("appended", write(more, " and more", 9));
    close(more);
    says("once more", open(path, O_RDONLY | O_CREAT, 0644));
    FILE *stream = fopen(of("/dev", fd, ""), "r+");
    char line[100] = "";
    printf("stream: %s\n", stream && fgets(line, sizeof line, stream) ? line : "none");
    if (stream)
        fclose(stream);
    say("access", access(path, R_OK | W_OK));
    say("execute", access(path, X_OK));
    say("chmod", chmod(path, 0640));
    say("utimens", utimensat(AT_FDCWD, path, times, 0));
    say("truncate", truncate(path, 7));
    say("set attribute", setxattr(path, "user.a", "b", 1, 0));
    say("attribute", getxattr(path, "user.a", line, sizeof line));
    say("stat", fstat(fd, &now));
    printf("  %o, %lld bytes\n", now.st_mode, (long long)now.st_size);
    say("system", statfs(path, &system));
    printf("  its own: %d\n", fstatfs(fd, &known) == 0 && known.f_type == system.f_type);
    say("unlink", unlink(path) < 0 ? -(errno != EPERM && errno != EACCES) : 1);
    say("mkdir", mkdir(path, 0700));
    say("rename", rename(path, "renamed"));
    say("rename to", rename("in", path));
    say("link", link(path, "linked"));
    int cut = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    say("written", write(cut, "new", 3));
    close(cut);
    looks("at last", path);
}

int main(int count, char **given)
{
    if (count == 3) {
        says("started with", open("/dev/stdin", O_RDONLY));
        leads("leads", "/dev/stdin");
        return 0;
    }
    if (count < 2 || chdir(given[1]) != 0 || !realpath(".", top))
        return 2;
    mkdir("f", 0755);
    int fd = open("in", O_RDWR | O_CREAT, 0644);
    write(fd, "some bytes", 10);
    file(fd);
    say("link by its number", linkat(AT_FDCWD, of("/proc/self", fd, ""), AT_FDCWD, "second",
                                     AT_SYMLINK_FOLLOW));
    says("second", open("second", O_RDONLY));

    puts("a link here");
    symlink(of("/dev", fd, ""), "there");
    symlink("/dev/fd", "all");
    says("there", open("there", O_RDONLY));
    char all[40];
    snprintf(all, sizeof all, "all/%d", fd);
    says("all", open(all, O_RDONLY));
    leads("all", all);
    says("all, not followed", open(all, O_RDONLY | O_NOFOLLOW));

    puts("no name");
    int nameless = open("gone", O_RDWR | O_CREAT, 0644);
    write(nameless, "hidden bytes", 12);
    unlink("gone");
    looks("nameless", of("/proc/self", nameless, ""));
    says("nameless", open(of("/proc/self", nameless, ""), O_RDWR));
    say("chmod", chmod(of("/dev", nameless, ""), 0600));
    say("truncate", truncate(of("/dev", nameless, ""), 6));
    char target[4096] = "";
    ssize_t size = readlink(of("/proc/self", nameless, ""), target, sizeof target - 1);
    printf("ends: %s\n", size > 10 ? target + size - 10 : "");
    fflush(stdout);
    if (fork() == 0) {
        dup2(nameless, 0);
        execl("/proc/self/exe", given[0], given[1], "again", NULL);
    }
    wait(NULL);

    puts("a folder");
    int folder = open("f", O_RDONLY | O_DIRECTORY);
    looks("folder", of("/proc/self", folder, ""));
    leads("folder", of("/proc/self", folder, ""));
    close(open(of("/proc/self", folder, "/made"), O_WRONLY | O_CREAT, 0644));
    say("made", access("f/made", F_OK));
    looks("in it", of("/proc/self", folder, "/made"));
    looks("above it", of("/dev", folder, "/../in"));
    says("written", open(of("/dev", folder, ""), O_WRONLY));
    says("as a file", open(of("/dev", folder, ""), O_RDONLY | O_CREAT, 0644));
    DIR *listing = opendir(of("/dev", folder, ""));
    for (struct dirent *entry; listing && (entry = readdir(listing));)
        if (entry->d_name[0] != '.')
            printf("  %s\n", entry->d_name);
    if (listing)
        closedir(listing);
    char whole[4096];
    printf("whole: %s\n", realpath(of("/dev", folder, "/made"), whole) ? whole + strlen(top) : "");
    say("go", chdir(of("/proc/self", folder, "")));
    looks("working folder", "/proc/self/cwd");
    leads("working folder", "/proc/self/cwd");
    looks("from there", "/proc/self/cwd/made");

    puts("a name alone");
    int named = open("../second", O_PATH);
    says("named", open(of("/proc/self", named, ""), O_RDONLY));
    symlink("made", "link");
    int link = open("link", O_PATH | O_NOFOLLOW);
    says("a link", open(of("/proc/self", link, ""), O_RDONLY));
    leads("a link", of("/proc/self", link, ""));

    puts("standard");
    dup2(fd, 0);
    leads("input", "/dev/stdin");
    leads("input's", "/proc/self/fd/0");
    looks("input", "/dev/stdin");
    says("input", open("/dev/stdin", O_RDONLY));
    fflush(stdout);
    int before = dup(1), out = open("../out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out, 1);
    int again = open("/dev/stdout", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    write(again, "by output", 9);
    dup2(before, 1);
    says("output", open("../out", O_RDONLY));
    return 0;
}
