/* Calls that the kernel alone can answer, of what is in the folder that is given. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <unistd.h>
#include <wordexp.h>

int pivot_root(const char *root, const char *old);

static void told(const char *what, int result) {
    printf("%s: %d %d\n", what, result < 0 ? -1 : 0, result < 0 ? errno : 0);
}

/* The same of a folder that is there, and of one that is not. */
static void all(const char *path, int may_go) {
    char words[4200];
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } to;
    int mount_id, fd = open(path, O_RDONLY), watches = inotify_init1(IN_CLOEXEC);
    memset(&to, 0, sizeof to);
    to.handle.handle_bytes = MAX_HANDLE_SZ;
    told("name_to_handle_at", name_to_handle_at(AT_FDCWD, path, &to.handle, &mount_id, 0));
    told("by a descriptor", name_to_handle_at(fd, "", &to.handle, &mount_id, AT_EMPTY_PATH));
    memset(&to, 0, sizeof to);
    told("open_by_handle_at", open_by_handle_at(fd, &to.handle, O_RDONLY));
    told("inotify_add_watch", inotify_add_watch(watches, path, IN_CREATE));
    told("fanotify_mark", fanotify_mark(watches, FAN_MARK_ADD, FAN_OPEN, AT_FDCWD, path));
    told("acct", acct(path));
    told("swapon", swapon(path, 0));
    told("swapoff", swapoff(path));
    told("mount", mount("none", path, "nothing", 0, NULL));
    told("mount of", mount(path, "/nonexistent", NULL, MS_BIND, NULL));
    told("umount", umount(path));
    told("umount2", umount2(path, MNT_DETACH));
#if __GLIBC_PREREQ(2, 36)
    told("fspick", fspick(AT_FDCWD, path, 0x80));
    struct mount_attr attr = {0};
    told("mount_setattr", mount_setattr(AT_FDCWD, path, 0, &attr, sizeof attr));
    told("open_tree", open_tree(AT_FDCWD, path, 0));
    told("move_mount", move_mount(AT_FDCWD, path, AT_FDCWD, "/nonexistent", 0));
    told("move_mount to", move_mount(AT_FDCWD, "/nonexistent", AT_FDCWD, path, 0));
#endif
    snprintf(words, sizeof words, "one %s/* two", path);
    wordexp_t found;
    told("wordexp", wordexp(words, &found, 0));
    snprintf(words, sizeof words, "one %s two", path);
    told("wordexp of no pattern", wordexp(words, &found, 0));
    if (may_go) {
        told("chroot", chroot(path));
        told("pivot_root", pivot_root(path, path));
    }
    close(watches);
    if (fd >= 0) close(fd);
}

int main(int argc, char **argv) {
    char none[4096];
    if (argc < 2) return 2;
    setvbuf(stdout, NULL, _IONBF, 0);
    snprintf(none, sizeof none, "%s/none", argv[1]);
    all(argv[1], argc > 2);
    puts("of none");
    all(none, argc > 2);
    return 0;
}
