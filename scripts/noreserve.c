/* Laid under qemu-user by scripts/aarch64.py (LD_PRELOAD).
 *
 * Before qemu maps a file it maps as much anonymous memory at that place. The catalog's map is of
 * 64 GiB, mostly a hole, and a kernel that counts what is promised refuses so much memory. So it is
 * asked not to count it. */

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mmap(void *at, size_t length, int protection, int flags, int file, off_t offset) {
    if (flags & MAP_ANONYMOUS) flags |= MAP_NORESERVE;
    return (void *)syscall(SYS_mmap, at, length, protection, flags, file, offset);
}

void *mmap64(void *at, size_t length, int protection, int flags, int file, off_t offset) {
    return mmap(at, length, protection, flags, file, offset);
}
