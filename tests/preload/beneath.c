/* A library between the preload library and the C library: what others do meanwhile, it does amid
   a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* While a process ends, it tells by the first, and waits until the second is closed. */
int beneath_ends[2] = {-1, -1};

void _exit(int status)
{
    char byte = 0;
    if (beneath_ends[0] >= 0) {
        write(beneath_ends[0], &byte, 1);
        while (read(beneath_ends[1], &byte, 1) > 0) continue;
    }
    for (;;) syscall(SYS_exit_group, status);
}

/* Before a socket is connected to itself, somebody sends it a descriptor. */
int connect(int fd, const struct sockaddr *address, socklen_t size)
{
    int (*next)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
    struct sockaddr_un own;
    socklen_t length = sizeof own;
    if (getsockname(fd, (struct sockaddr *)&own, &length) == 0 && length == size &&
        memcmp(&own, address, size) == 0) {
        char byte = 0, room[CMSG_SPACE(sizeof(int))] = "";
        struct iovec bytes = {&byte, 1};
        struct msghdr message = {(void *)address, size, &bytes, 1, room, sizeof room, 0};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        int other = socket(AF_UNIX, SOCK_DGRAM, 0), sent = open("/dev/null", O_RDWR);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &sent, sizeof sent);
        sendmsg(other, &message, 0);
        close(other);
        close(sent);
    }
    return next(fd, address, size);
}
