/* Streams of folders, and what reads folders without one: below the folder that is given. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 3000

static void make(const char *name) { close(open(name, O_CREAT | O_WRONLY, 0644)); }

static void fill(const char *folder, int count) {
    char name[64];
    mkdir(folder, 0755);
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s/f%04d", folder, i);
        make(name);
    }
}

static int count(DIR *folder) {
    int found = 0;
    while (readdir(folder) != NULL) found++;
    return found;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void kinds(void) {
    char *lines[32];
    int found = 0;
    mkdir("kinds", 0755);
    make("kinds/file");
    mkdir("kinds/folder", 0755);
    symlink("file", "kinds/link");
    mkfifo("kinds/fifo", 0644);
    mknod("kinds/socket", S_IFSOCK | 0644, 0);
    make("kinds/\xc3\xa9t\xc3\xa9");
    char longest[300] = "kinds/";
    memset(longest + 6, 'n', 255);
    make(longest);
    DIR *folder = opendir("kinds");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL; found++) {
        struct stat stat;
        char line[400];
        fstatat(dirfd(folder), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW);
        int is_above = strcmp(entry->d_name, "..") == 0;
        snprintf(line, sizeof line, "%.255s type %d size %d ino %d", entry->d_name, entry->d_type,
                 entry->d_reclen % 8, is_above || stat.st_ino == entry->d_ino);
        lines[found] = strdup(line);
    }
    closedir(folder);
    qsort(lines, found, sizeof *lines, by_name);
    for (int i = 0; i < found; i++) puts(lines[i]);
}

static void opened(void) {
    struct stat stat;
    const char *names[] = {"", "missing", "kinds/file", "kinds/file/", "kinds/link", "to-kinds",
                           "to-self", "to-kinds/", ".", "kinds/..", "kinds/./folder//"};
    symlink("kinds", "to-kinds");
    symlink("to-self", "to-self");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        errno = 0;
        DIR *folder = opendir(names[i]);
        printf("opendir %s: %d, %d\n", names[i], folder != NULL, folder != NULL ? 0 : errno);
        if (folder == NULL) continue;
        int fd = dirfd(folder), flags = fcntl(fd, F_GETFL);
        printf("  cloexec %d, flags %o, folder %d\n", fcntl(fd, F_GETFD),
               flags & (O_ACCMODE | O_DIRECTORY | O_NONBLOCK),
               fstat(fd, &stat) == 0 && S_ISDIR(stat.st_mode));
        printf("  closedir %d", closedir(folder));
        printf(", then %d %d\n", fcntl(fd, F_GETFD), errno);
    }
    int fd = open("kinds/file", O_RDONLY);
    printf("fdopendir of a file: %p %d\n", (void *)fdopendir(fd), errno);
    close(fd);
    printf("fdopendir of none: %p %d\n", (void *)fdopendir(fd), errno);
    fd = open("kinds", O_PATH | O_DIRECTORY);
    DIR *folder = fdopendir(fd);
    printf("fdopendir by O_PATH: %d", folder != NULL);
    printf(", %d entries, %d\n", count(folder), errno);
    closedir(folder);
    fd = open("kinds", O_RDONLY);
    folder = fdopendir(fd);
    printf("fdopendir: same %d, cloexec %d, %d entries\n", dirfd(folder) == fd,
           fcntl(fd, F_GETFD), count(folder));
    errno = 7;
    printf("at the end: %p %d\n", (void *)readdir(folder), errno);
    printf("by dup: %d\n", count(fdopendir(dup(fd))));
    closedir(folder);
}

static void places(void) {
    long place[MANY + 2];
    char *name[MANY + 2];
    int found = 0, wrong = 0;
    fill("many", MANY);
    DIR *folder = opendir("many");
    for (;;) {
        place[found] = telldir(folder);
        struct dirent *entry = readdir(folder);
        if (entry == NULL) break;
        name[found++] = strdup(entry->d_name);
    }
    printf("%d entries, first at %ld\n", found, place[0]);
    for (int i = found - 1; i >= 0; i -= 7) {
        seekdir(folder, place[i]);
        wrong += telldir(folder) != place[i];
        struct dirent *entry = readdir(folder);
        wrong += entry == NULL || strcmp(entry->d_name, name[i]) != 0;
    }
    seekdir(folder, place[found]);
    printf("%d wrong, behind the end %p\n", wrong, (void *)readdir(folder));
    make("many/new");
    rewinddir(folder);
    printf("rewound: %d\n", count(folder));
    unlink("many/new");
    rewinddir(folder);
    printf("rewound: %d\n", count(folder));
    closedir(folder);
}

static void changed(void) {
    int removed = 0, old = 0;
    DIR *folder = opendir("many");
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[300];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "more-%.255s", entry->d_name);
        if (entry->d_name[0] == 'f') {
            old++;
            if (old % 3 == 0) {
                int fd = openat(dirfd(folder), path, O_CREAT | O_WRONLY, 0644);
                close(fd);
            }
        }
    }
    printf("%d of the old ones\n", old);
    rewinddir(folder);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') removed += unlinkat(dirfd(folder), entry->d_name, 0) == 0;
    }
    closedir(folder);
    printf("%d removed, rmdir %d\n", removed, rmdir("many"));
    mkdir("gone", 0755);
    folder = opendir("gone");
    int fd = dup(dirfd(folder));
    rmdir("gone");
    errno = 7;
    char buffer[1024];
    printf("removed: %p %d", (void *)readdir(folder), errno);
    ssize_t read = getdents64(fd, buffer, sizeof buffer);
    printf(", by getdents64 %zd %d\n", read, errno);
    close(fd);
    closedir(folder);
}

static DIR *shared;

static void *count_own(void *unused) {
    (void)unused;
    DIR *folder = opendir("several");
    long found = count(folder);
    rewinddir(folder);
    found += count(folder);
    closedir(folder);
    return (void *)found;
}

static void *count_shared(void *unused) {
    (void)unused;
    return (void *)(long)count(shared);
}

static void threads(void) {
    pthread_t thread[8];
    long sum = 0;
    fill("several", 500);
    for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, count_own, NULL);
    for (int i = 0; i < 8; i++) {
        void *found;
        pthread_join(thread[i], &found);
        sum += (long)found;
    }
    printf("each: %ld\n", sum);
    sum = 0;
    shared = opendir("several");
    for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, count_shared, NULL);
    for (int i = 0; i < 8; i++) {
        void *found;
        pthread_join(thread[i], &found);
        sum += (long)found;
    }
    closedir(shared);
    printf("together: %ld\n", sum);
    DIR *open[200];
    sum = 0;
    for (int i = 0; i < 200; i++) open[i] = opendir("several");
    for (int i = 0; i < 200; i++) sum += readdir(open[i]) != NULL;
    for (int i = 0; i < 200; i++) sum += closedir(open[i]);
    printf("open at once: %ld\n", sum);
}

static int entries_in(const char *buffer, ssize_t size) {
    int found = 0;
    for (ssize_t at = 0; at < size; found++) {
        at += ((const struct dirent64 *)(buffer + at))->d_reclen;
    }
    return found;
}

static void records(void) {
    char buffer[256];
    int fd = open("several", O_RDONLY | O_DIRECTORY), found = 0;
    ssize_t size;
    off_t base = -1;
    printf("too small: %zd", getdents64(fd, buffer, 8));
    printf(" %d\n", errno);
    while ((size = getdents64(fd, buffer, sizeof buffer)) > 0) found += entries_in(buffer, size);
    printf("%zd at the end, %d found\n", size, found);
    lseek(fd, 0, SEEK_SET);
    size = getdirentries(fd, buffer, sizeof buffer, &base);
    off_t after = lseek(fd, 0, SEEK_CUR);
    printf("again: %d, base %ld, moved %d\n", size > 0, (long)base, after > 0);
    getdirentries(fd, buffer, sizeof buffer, &base);
    printf("base is the place %d\n", base == after);
    close(fd);
    fd = open("kinds/file", O_RDONLY);
    printf("of a file: %zd", getdents64(fd, buffer, sizeof buffer));
    printf(" %d\n", errno);
    close(fd);
    fd = open("kinds", O_PATH);
    printf("by O_PATH: %zd", getdents64(fd, buffer, sizeof buffer));
    printf(" %d\n", errno);
    close(fd);
    printf("of none: %zd", getdents64(fd, buffer, sizeof buffer));
    printf(" %d\n", errno);
}

static void forked(void) {
    char buffer[64];
    int fd = open("several", O_RDONLY | O_DIRECTORY), status, found = 0;
    DIR *folder = opendir("several");
    ssize_t size;
    for (int turn = 0; turn < 10; turn++) {
        found += entries_in(buffer, getdents64(fd, buffer, sizeof buffer));
        if (fork() == 0) {
            _exit(entries_in(buffer, getdents64(fd, buffer, sizeof buffer)));
        }
        wait(&status);
        found += WEXITSTATUS(status);
    }
    while ((size = getdents64(fd, buffer, sizeof buffer)) > 0) found += entries_in(buffer, size);
    printf("by turns: %d\n", found);
    if (fork() == 0) {
        _exit(count(folder) == 502);
    }
    wait(&status);
    printf("the child has read all: %d, the parent %d\n", WEXITSTATUS(status), count(folder));
    rewinddir(folder);
    printf("from the beginning: %d\n", count(folder));
    closedir(folder);
    close(fd);
}

static int is_even(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    errno = EPIPE;
    return entry->d_name[0] == 'f' && (entry->d_name[length - 1] - '0') % 2 == 0;
}

static int reversed(const struct dirent **a, const struct dirent **b) { return -alphasort(a, b); }

static void scanned(void) {
    struct dirent **list;
    errno = 7;
    int found = scandir("several", &list, is_even, reversed);
    printf("scandir: %d %s %s errno %d\n", found, list[0]->d_name, list[found - 1]->d_name, errno);
    for (int i = 0; i < found; i++) free(list[i]);
    free(list);
    found = scandir("kinds", &list, NULL, alphasort);
    for (int i = 0; i < found; i++) printf("  %.20s %d\n", list[i]->d_name, list[i]->d_type);
    int fd = open("kinds", O_RDONLY);
    found = scandirat(fd, "folder", &list, NULL, versionsort);
    printf("scandirat: %d\n", found);
    printf("scandirat of a file: %d", scandirat(fd, "file", &list, NULL, NULL));
    printf(" %d\n", errno);
    close(fd);
    printf("scandir of none: %d", scandir("missing", &list, NULL, NULL));
    printf(" %d\n", errno);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void own_memory(void) {
    struct dirent entry, *result;
    DIR *folder = opendir("kinds");
    int found = 0, code;
    while ((code = readdir_r(folder, &entry, &result)) == 0 && result == &entry) found++;
    printf("readdir_r: %d, at the end %d %p\n", found, code, (void *)result);
    closedir(folder);
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    kinds();
    opened();
    places();
    changed();
    threads();
    records();
    forked();
    scanned();
    own_memory();
    return 0;
}
