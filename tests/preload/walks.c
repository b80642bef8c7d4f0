/* Walks over trees, and patterns of names: below the folder that is given. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *line[4096];
static int lines;
static const char *top;

static void note(const char *text) { line[lines++] = strdup(text); }

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What was met, in an order that does not depend on that of names in a folder. */
static void told(const char *what, int result) {
    printf("%s: %d, %d met\n", what, result, lines);
    qsort(line, lines, sizeof *line, by_text);
    for (int i = 0; i < lines; i++) {
        printf("  %s\n", line[i]);
        free(line[i]);
    }
    lines = 0;
}

static void make(const char *name, int size) {
    int fd = open(name, O_CREAT | O_WRONLY, 0644);
    if (ftruncate(fd, size) != 0) puts("no size");
    close(fd);
}

/* The path without the folder that was given. */
static const char *below(const char *path) {
    size_t length = strlen(top);
    return strncmp(path, top, length) == 0 ? path + length : path;
}

static void grow(void) {
    mkdir("a", 0755);
    make("a/file", 10);
    mkdir("a/sub", 0755);
    make("a/sub/g", 20);
    mkdir("a/sub/deep", 0755);
    make("a/sub/deep/h", 30);
    make("a/sub/deep/i", 31);
    mkdir("a/sub/deep/deeper", 0755);
    mkdir("a/empty", 0755);
    make("a/.hidden", 1);
    symlink("../other", "a/link");
    symlink("none", "a/dangling");
    symlink("..", "a/sub/up");
    mkfifo("a/fifo", 0644);
    mkdir("other", 0755);
    make("other/o", 40);
    symlink("a", "to-a");
    symlink("none", "to-none");
}

static int was_before;

static int met(const char *path, const struct stat *stat, int what, struct FTW *at) {
    char text[512];
    struct stat same;
    int near = lstat(path + at->base, &same) == 0 && same.st_ino == stat->st_ino;
    int is_known = what != FTW_NS && what != FTW_DP;
    snprintf(text, sizeof text, "%s base %s level %d what %d size %ld near %d", below(path),
             path + at->base, at->level, what,
             is_known && S_ISREG(stat->st_mode) ? (long)stat->st_size : -1, is_known ? near : -1);
    note(text);
    if (at->level == 0) was_before = lines;
    return 0;
}

static int met_simply(const char *path, const struct stat *stat, int what) {
    char text[512];
    (void)stat;
    snprintf(text, sizeof text, "%s what %d", below(path), what);
    note(text);
    return 0;
}

static int stopped(const char *path, const struct stat *stat, int what, struct FTW *at) {
    (void)stat, (void)what, (void)at;
    note(below(path));
    return 42;
}

static int skipped(const char *path, const struct stat *stat, int what, struct FTW *at) {
    met(path, stat, what, at);
    if (what == FTW_D && strcmp(path + at->base, "sub") == 0) return FTW_SKIP_SUBTREE;
    return FTW_CONTINUE;
}

static int stopped_below(const char *path, const struct stat *stat, int what, struct FTW *at) {
    (void)stat, (void)what;
    if (at->level == 0) note(below(path));
    return at->level == 1 ? FTW_STOP : FTW_CONTINUE;
}

static int first_alone(const char *path, const struct stat *stat, int what, struct FTW *at) {
    (void)stat;
    if (at->level == 0) note(below(path));
    return at->level == 1 && what != FTW_DP ? FTW_SKIP_SIBLINGS : FTW_CONTINUE;
}

static void walked(void) {
    char path[4096], name[64], here[4096], there[4096];
    snprintf(path, sizeof path, "%s/a", top);
    getcwd(here, sizeof here);
    for (int flags = 0; flags < 32; flags++) {
        for (int folders = -1; folders < 4; folders += 2) {
            // Out of the folder of a link, libc goes by "..", if it may not keep it open.
            if (flags & FTW_CHDIR && !(flags & FTW_PHYS) && folders < 3) continue;
            int result = nftw(path, met, folders, flags);
            snprintf(name, sizeof name, "nftw %d %d, top %s", flags, folders,
                     was_before == 1 ? "first" : was_before == lines ? "last" : "between");
            told(name, result);
            getcwd(there, sizeof there);
            if (strcmp(here, there) != 0) printf("in %s\n", below(there));
        }
    }
    const char *from[] = {"a", "a///", "./a/sub", "to-a", "to-none", "a/file", "", "none",
                          "a/file/", "a/sub/../sub/deep"};
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        for (int flags = 0; flags < 16; flags += 5) {
            errno = 0;
            int result = nftw(from[i], met, 5, flags);
            snprintf(name, sizeof name, "nftw %s %d, %d", from[i], flags, errno);
            told(name, result);
        }
        errno = 0;
        int result = ftw(from[i], met_simply, 5);
        snprintf(name, sizeof name, "ftw %s, %d", from[i], errno);
        told(name, result);
    }
    told("stopped", nftw("a", stopped, 5, FTW_PHYS));
    told("skipped", nftw("a", skipped, 5, FTW_PHYS | FTW_ACTIONRETVAL));
    told("one alone", nftw("a", first_alone, 5, FTW_PHYS | FTW_ACTIONRETVAL));
    told("stopped below", nftw("a", stopped_below, 5, FTW_PHYS | FTW_ACTIONRETVAL | FTW_CHDIR));
    int result = nftw("a", met, 5, 64);
    printf("no such flag: %d %d\n", result, errno);
}

static int by_fts_name(const FTSENT **a, const FTSENT **b) {
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void show(FTS *walk, FTSENT *entry, int options) {
    struct stat stat;
    int is_there = options & FTS_NOSTAT ? -1 : lstat(entry->fts_accpath, &stat) == 0;
    int is_file = entry->fts_info == FTS_F && !(options & FTS_NOSTAT);
    printf("  %s info %d level %d name %s lengths %d %d errno %d size %ld there %d cycle %s",
           below(entry->fts_path), entry->fts_info, entry->fts_level, entry->fts_name,
           entry->fts_pathlen == (int)strlen(entry->fts_path), entry->fts_namelen,
           entry->fts_errno, is_file ? (long)entry->fts_statp->st_size : -1, is_there,
           entry->fts_info == FTS_DC ? entry->fts_cycle->fts_name : "");
    printf(" parent %s number %ld\n", entry->fts_level > 0 ? entry->fts_parent->fts_name : "",
           entry->fts_parent->fts_number);
    entry->fts_number = entry->fts_level + 1;
    (void)walk;
}

static void read_all(const char *what, char *const *paths, int options, int children) {
    char here[4096], there[4096];
    getcwd(here, sizeof here);
    errno = 0;
    FTS *walk = fts_open(paths, options, by_fts_name);
    printf("%s, options %d: %d %d\n", what, options, walk != NULL, walk != NULL ? 0 : errno);
    if (walk == NULL) return;
    FTSENT *entry;
    if (children) {
        for (entry = fts_children(walk, 0); entry != NULL; entry = entry->fts_link) {
            printf("  begins with %s %d\n", below(entry->fts_name), entry->fts_info);
        }
    }
    while ((entry = fts_read(walk)) != NULL) {
        show(walk, entry, options);
        if (!children) continue;
        errno = 7;
        FTSENT *child = fts_children(walk, children == 2 ? FTS_NAMEONLY : 0);
        int code = errno;
        for (; child != NULL; child = child->fts_link) {
            printf("    has %s %d\n", child->fts_name, children == 2 ? 0 : child->fts_info);
            if (children == 1 && strcmp(child->fts_name, "empty") == 0) {
                fts_set(walk, child, FTS_SKIP);
            }
            // By whole paths, libc looks through the link by the path of the entry before.
            if (options & FTS_NOCHDIR || children != 1) continue;
            if (child->fts_info == FTS_SL) fts_set(walk, child, FTS_FOLLOW);
        }
        printf("    errno %d\n", code);
    }
    printf("  ended by %d, ", errno);
    printf("closed %d\n", fts_close(walk));
    getcwd(there, sizeof there);
    if (strcmp(here, there) != 0) printf("in %s\n", below(there));
}

static void read_by_fts(void) {
    char whole[4096];
    snprintf(whole, sizeof whole, "%s/a", top);
    const int options[] = {
        FTS_PHYSICAL, FTS_LOGICAL, FTS_PHYSICAL | FTS_NOCHDIR, FTS_PHYSICAL | FTS_COMFOLLOW,
        FTS_PHYSICAL | FTS_NOSTAT, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR,
        FTS_PHYSICAL | FTS_SEEDOT, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR | FTS_SEEDOT,
        FTS_LOGICAL | FTS_SEEDOT | FTS_NOSTAT, FTS_NOSTAT,
    };
    char *all[] = {"to-a", "none", "a/file", "other", "a/sub", ".", NULL};
    char *one[] = {whole, NULL}, *near[] = {"a/", NULL}, *empty[] = {"a", "", NULL};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        read_all("whole", one, options[i], 0);
        read_all("near", near, options[i], 0);
        read_all("all", all, options[i], 0);
        read_all("children", one, options[i], 1);
        read_all("children near", near, options[i], 1);
        read_all("names", near, options[i], 2);
    }
    read_all("an empty one", empty, FTS_PHYSICAL, 0);
    read_all("no such options", one, 0x1000, 0);
}

static void steered_by_fts(void) {
    char *near[] = {"a", NULL};
    for (int options = FTS_PHYSICAL; options <= (FTS_PHYSICAL | FTS_NOCHDIR); options += 4) {
        FTS *walk = fts_open(near, options, by_fts_name);
        int again = 0;
        for (FTSENT *entry; (entry = fts_read(walk)) != NULL;) {
            show(walk, entry, options);
            if (entry->fts_info == FTS_SL || entry->fts_info == FTS_SLNONE) {
                if (!again++) printf("follow %d\n", fts_set(walk, entry, FTS_FOLLOW));
                if (strcmp(entry->fts_name, "link") == 0) fts_set(walk, entry, FTS_FOLLOW);
            }
            if (strcmp(entry->fts_name, "deep") == 0) fts_set(walk, entry, FTS_SKIP);
            if (strcmp(entry->fts_name, "file") == 0 && again++ == 1) {
                fts_set(walk, entry, FTS_AGAIN);
            }
        }
        errno = 0;
        printf("after the end %p\n", (void *)fts_read(walk));
        fts_close(walk);
        walk = fts_open(near, options, NULL);
        for (int i = 0; i < 4; i++) fts_read(walk);
        int set = fts_set(walk, fts_read(walk), 9);
        printf("no such word: %d %d", set, errno);
        void *children = fts_children(walk, 9);
        printf(", nor such children: %p %d\n", children, errno);
        printf("closed in between %d, at a %d\n", fts_close(walk), access("a", F_OK));
    }
    FTS *walk = fts_open(near, FTS_PHYSICAL, NULL);
    for (FTSENT *entry; (entry = fts_read(walk)) != NULL;) {
        if (entry->fts_info == FTS_DP) {
            printf("rmdir %s %d\n", entry->fts_level ? "" : "a", rmdir(entry->fts_accpath));
        } else if (entry->fts_info != FTS_D) {
            if (unlink(entry->fts_accpath) != 0) printf("left %s\n", entry->fts_path);
        }
    }
    printf("closed %d, a is there: %d\n", fts_close(walk), access("a", F_OK));
}

static int failed(const char *path, int code) {
    printf("  failed at %s by %d\n", below(path), code);
    return 0;
}

static int failed_and_ended(const char *path, int code) {
    printf("  ended at %s by %d\n", below(path), code);
    return 1;
}

static int opened_by_own;

static void close_own(void *folder) { closedir(folder); }

static void *open_own(const char *path) {
    opened_by_own++;
    return opendir(path);
}

static void show_found(const char *pattern, int flags, int result, glob_t *found) {
    printf("glob %s %d: %d, flags %d\n", below(pattern), flags, result, found->gl_flags);
    if (result != 0) return;
    for (size_t i = 0; i < found->gl_pathc; i++) {
        printf("  %s\n", below(found->gl_pathv[found->gl_offs + i]));
    }
    found->gl_offs = 0;
    globfree(found);
}

static void matched(void) {
    const char *patterns[] = {"%s/a/*", "%s/a/*/*", "%s/*/*/*/h", "%s/a/.*", "%s/{a,other}/?",
                              "%s/a/sub", "%s/a/s*/", "%s/none*", "%s/a/dangling", "%s/none",
                              "%s/a/file/*", "%s/a/[f-l]*", "%s/a/link/*", "a/*", "*", "./a/s*",
                              "a/sub/../*", "to-*", "*/", "a/\\*", "~/none"};
    const int flags[] = {0, GLOB_MARK, GLOB_NOCHECK, GLOB_BRACE, GLOB_ONLYDIR, GLOB_PERIOD,
                         GLOB_NOMAGIC, GLOB_MARK | GLOB_BRACE | GLOB_TILDE, GLOB_NOESCAPE};
    char path[4096];
    glob_t found;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        snprintf(path, sizeof path, patterns[i], top);
        for (size_t j = 0; j < sizeof flags / sizeof *flags; j++) {
            memset(&found, 0x55, sizeof found);
            int result = glob(path, flags[j], failed, &found);
            found.gl_offs = 0;
            show_found(path, flags[j], result, &found);
        }
    }
    memset(&found, 0, sizeof found);
    found.gl_offs = 3;
    glob("a/*", GLOB_DOOFFS, NULL, &found);
    int result = glob("other/*", GLOB_DOOFFS | GLOB_APPEND, NULL, &found);
    printf("offset: %p %p\n", (void *)found.gl_pathv[0], (void *)found.gl_pathv[2]);
    show_found("appended", 0, result, &found);
    found.gl_opendir = open_own;
    found.gl_readdir = (struct dirent * (*)(void *)) readdir;
    found.gl_closedir = close_own;
    found.gl_lstat = lstat;
    found.gl_stat = stat;
    result = glob("a/*", GLOB_ALTDIRFUNC, NULL, &found);
    show_found("by own", 0, result, &found);
    printf("opened by own: %d, kept %d\n", opened_by_own, found.gl_opendir == open_own);
    result = glob("to-self/*", GLOB_ERR, failed_and_ended, &found);
    printf("unreadable: %d\n", result);
    symlink("to-self", "to-self");
    result = glob("to-self/*", GLOB_ERR, failed_and_ended, &found);
    printf("unreadable: %d\n", result);
}

int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    top = argv[1];
    setvbuf(stdout, NULL, _IONBF, 0);
    grow();
    walked();
    matched();
    read_by_fts();
    steered_by_fts();
    return 0;
}
