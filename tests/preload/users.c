/* A program that becomes another user: it may what that one may, also later. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4000];

static const char *at(const char *folder, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void say(const char *what, long done)
{
    printf("%s: %s\n", what, done < 0 ? strerror(errno) : "done");
}

int main(int count, char **words)
{
    const char *here = words[1];
    struct stat stat_of;
    gid_t group = 65534;
    (void)count;
    umask(022);
    say("chmod of all", chmod(here, 0755));
    say("mkdir", mkdir(at(here, "open"), 0777));
    say("chmod", chmod(at(here, "open"), 01777));
    say("creat", close(creat(at(here, "open/root"), 0600)));
    say("setgroups", setgroups(1, &group));
    say("setegid", setegid(65534));
    say("seteuid", seteuid(65534));
    say("mkdir in root's", mkdir(at(here, "not"), 0777));
    say("open root's", open(at(here, "open/root"), O_RDONLY));
    say("unlink root's", unlink(at(here, "open/root")));
    say("access as the real user", access(at(here, "open/root"), R_OK));
    say("eaccess", eaccess(at(here, "open/root"), R_OK));
    int fd = open(at(here, "open/own"), O_RDWR | O_CREAT, 0666);
    say("write", write(fd, "abc", 3));
    say("fchmod", fchmod(fd, 04755));
    for (int step = 0; step < 400; step++) /* spans are opened as who opened the pool */
        if (pwrite(fd, path, sizeof path, step * 65536L) < 0)
            say("pwrite", -1);
    say("fstat", fstat(fd, &stat_of));
    printf("%u %u %o\n", stat_of.st_uid, stat_of.st_gid, stat_of.st_mode);
    say("chown to root", fchown(fd, 0, -1));
    say("seteuid", seteuid(0));
    say("setegid", setegid(0));
    say("open root's", open(at(here, "open/root"), O_RDONLY));
    say("setuid", setuid(65534));
    say("open root's", open(at(here, "open/root"), O_RDONLY));
    return 0;
}
