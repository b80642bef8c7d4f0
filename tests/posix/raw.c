/* A program that has no library: it makes system calls itself, as programs of Go do. It works in
 * the folder that it is given. Its exit code is the line at which something was not as it should
 * be. */

enum { READ, WRITE, OPEN, CLOSE, FSTAT = 5, LSEEK = 8, MMAP, MUNMAP = 11, PREAD = 17, PWRITE };
enum { FORK = 57, EXIT = 60, WAIT = 61, FTRUNCATE = 77, CHDIR = 80, RENAME = 82, LINK = 86 };
enum { UNLINK = 87, FSYNC = 74, FALLOCATE = 285 };
enum { RDWR = 2, CREAT = 0100, APPEND = 02000, SHARED = 1, READ_WRITE = 3 };

static long call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

#define CALL(number, ...) CALL_(number, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define CALL_(number, a, b, c, d, e, f, ...) \
    call(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define MUST(what) \
    do { \
        if (!(what)) CALL(EXIT, __LINE__ & 127); \
    } while (0)

static void work(const char *folder)
{
    char seen[7];
    int status = 0;
    MUST(CALL(CHDIR, folder) == 0);
    long fd = CALL(OPEN, "file", RDWR | CREAT, 0644);
    MUST(fd >= 0);
    MUST(CALL(FALLOCATE, fd, 0, 0, 8000) == 0);
    MUST(CALL(FTRUNCATE, fd, 7000) == 0);
    char *mapped = (char *)CALL(MMAP, 0, 7000, READ_WRITE, SHARED, fd, 0);
    MUST((unsigned long)mapped < -4096UL);
    for (int n = 0; n < 7000; n++) mapped[n] = "seven! "[n % 7];
    MUST(CALL(MUNMAP, mapped, 7000) == 0);
    MUST(CALL(PREAD, fd, seen, 7, 6993) == 7 && seen[0] == 's' && seen[5] == '!');
    MUST(CALL(LSEEK, fd, 0, 2) == 7000);
    /* A child has the place of its parent, and appends. */
    long child = CALL(FORK, 0);
    MUST(child >= 0);
    if (child == 0) {
        MUST(CALL(WRITE, fd, "end\n", 4) == 4);
        CALL(EXIT, 0);
    }
    MUST(CALL(WAIT, child, &status, 0, 0) == child && status == 0);
    MUST(CALL(LSEEK, fd, 0, 1) == 7004);
    MUST(CALL(FSYNC, fd) == 0 && CALL(CLOSE, fd) == 0);
    MUST(CALL(LINK, "file", "other") == 0 && CALL(UNLINK, "file") == 0);
    MUST(CALL(RENAME, "other", "renamed") == 0);
    MUST(CALL(OPEN, "file", RDWR) == -2);
    CALL(EXIT, 0);
}

__attribute__((used)) static void begin(long *stack)
{
    MUST(stack[0] == 2);
    work((const char *)stack[2]);
}

__asm__(".globl _start\n_start: xor %rbp, %rbp\nmov %rsp, %rdi\nand $-16, %rsp\ncall begin\n");
