/* What descriptors refuse that are no files, or not to be written to, and what is copied within a
   file: below the folder that is given. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static void say(const char *what, long long code)
{
    printf("%s: %lld %s\n", what, code, code < 0 ? strerrorname_np(errno) : "");
}

static void refused(const char *who, int fd, int file)
{
    char byte = 'x';
    struct iovec vector = {&byte, 1};
    loff_t from = 0, to = 0;
    off_t place = 0;
    printf("%s\n", who);
    say("read", read(fd, &byte, 1));
    say("pread", pread(fd, &byte, 1, 0));
    say("readv", readv(fd, &vector, 1));
    say("write", write(fd, &byte, 1));
    say("pwrite", pwrite(fd, &byte, 1, 0));
    say("writev", writev(fd, &vector, 1));
    say("pwritev2", pwritev2(fd, &vector, 1, 0, 0));
    say("ftruncate", ftruncate(fd, 1));
    say("fallocate", fallocate(fd, 0, 0, 10));
    say("posix_fallocate", posix_fallocate(fd, 0, 10));
    say("copied to", copy_file_range(file, &from, fd, &to, 1, 0));
    from = to = 0;
    say("copied from", copy_file_range(fd, &from, file, &to, 1, 0));
    say("sent to", sendfile(fd, file, &place, 1));
}

static void copied(const char *what, int from, int to, loff_t at, loff_t into, size_t size)
{
    errno = 0;
    ssize_t done = copy_file_range(from, &at, to, &into, size, 0);
    say(what, done);
    printf("then at %lld and %lld\n", (long long)at, (long long)into);
}

static void asked(const char *who, int fd)
{
    int count = -1, yes = 1, no = 0;
    uint64_t hint = 7;
    printf("%s\n", who);
    say("left", ioctl(fd, FIONREAD, &count));
    printf("%d\n", count);
    say("no wait", ioctl(fd, FIONBIO, &yes));
    printf("%d\n", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    say("wait", ioctl(fd, FIONBIO, &no));
    printf("%d\n", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    say("owner", fcntl(fd, F_GETOWN));
    say("signal", fcntl(fd, F_GETSIG));
    say("lease", fcntl(fd, F_GETLEASE));
    say("hint", fcntl(fd, F_GET_RW_HINT, &hint));
    printf("%d\n", (int)hint);
    say("none", ioctl(fd, TCGETS, &count));
}

static void by_flags(int fd)
{
    char bytes[] = "abc";
    struct iovec both[] = {{bytes, 2}, {bytes + 2, 1}};
    lseek(fd, 1, SEEK_SET);
    say("behind the end", pwritev2(fd, both, 2, 0, RWF_APPEND));
    say("then at", lseek(fd, 0, SEEK_CUR));
    say("behind the end, and on", pwritev2(fd, both, 1, -1, RWF_APPEND));
    say("then at", lseek(fd, 0, SEEK_CUR));
    say("unknown flags", pwritev2(fd, both, 2, 0, 1 << 20));
    say("unknown flags", preadv2(fd, both, 2, 0, 1 << 20));
    say("durable", pwritev2(fd, both, 2, 0, RWF_SYNC));
    say("end", lseek(fd, 0, SEEK_END));
}

int main(int count, char **given)
{
    if (count < 2 || chdir(given[1]) != 0)
        return 2;
    int file = open("file", O_RDWR | O_CREAT, 0644);
    char bytes[5000];
    memset(bytes, 'b', sizeof bytes);
    write(file, bytes, sizeof bytes);
    int appended = open("file", O_RDWR | O_APPEND);
    int reading = open("file", O_RDONLY), writing = open("file", O_WRONLY);
    int folder = open(".", O_RDONLY), named = open("file", O_PATH);

    refused("a folder", folder, file);
    refused("for reading alone", reading, file);
    refused("for its name alone", named, file);
    say("read, for writing alone", read(writing, bytes, 1));

    copied("beside each other", file, file, 0, 100, 100);
    copied("onto a part of itself", file, file, 0, 99, 100);
    copied("onto itself", file, file, 7, 7, 100);
    copied("from the end on", file, file, 5000, 0, 70000);
    copied("from behind the end on", file, file, 9000, 1000, 70000);
    copied("the last bytes, behind the end", file, file, 4000, 5000, 70000);
    copied("nothing, onto itself", file, file, 7, 7, 0);
    copied("to what is appended to", file, appended, 0, 0, 10);
    printf("%lld bytes\n", (long long)lseek(file, 0, SEEK_END));

    mkdir("gone", 0755);
    int gone = open("gone", O_RDONLY);
    rmdir("gone");
    DIR *stream = fdopendir(gone);
    errno = 0;
    printf("a removed folder: %s, %s\n", stream ? "opened" : strerrorname_np(errno),
           stream && readdir(stream) ? "a member" : "no member");
    say("error", -errno);
    say("made there", openat(gone, "file", O_CREAT | O_WRONLY, 0644));
    int kept = open("kept", O_RDWR | O_CREAT, 0644);
    write(kept, bytes, 1000);
    by_flags(kept);
    lseek(kept, 10, SEEK_SET);
    asked("file", kept);
    lseek(kept, 5000, SEEK_SET);
    asked("behind its end", kept);
    return 0;
}
