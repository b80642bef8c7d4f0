/* Signals come often while a program calls everything there is; their handler opens, writes, closes
 * and looks. What calls say is checked; a call that hangs is told of, with the handler's state. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 40
#define PATIENCE 20

extern char **environ;

static char top[4096], handled[4200], here[4200];
static const char *volatile group = "none", *volatile doing = "nothing";
static volatile int in_handler, surprises, away;
static volatile long handlings, written;
static volatile int left = -1;
static sigjmp_buf back;
static volatile int jumps;

static void say(const char *text) { if (write(2, text, strlen(text)) < 0) return; }

static void surprise(const char *what, int code) {
    char text[300];
    int size = snprintf(text, sizeof text, "%s: %s: errno %d (%s)\n", group, what, code,
                        in_handler ? "in the handler" : "in the program");
    if (surprises++ < 20 && write(1, text, size) < 0) _exit(3);
}

static timer_t ticking;

/* The next signal comes after a while, which is never the same. */
static void tick(void) {
    static unsigned seed = 1;
    seed = seed * 1103515245 + 12345;
    struct itimerspec soon = {{0, 0}, {0, 20000 + (seed >> 16) % 200 * 1000}};
    timer_settime(ticking, 0, &soon, NULL);
}

/* What fails is told of. */
static long checked(const char *what, long done) {
    int code = errno;
    if (done < 0) surprise(what, code);
    return done;
}
#define DO(call) (doing = #call, checked(#call, (long)(call)))
#define IN(call) checked(#call, (long)(call))

static void handle(int number) {
    struct stat known;
    int before = errno, fd;
    (void)number;
    in_handler = 1;
    handlings++;
    if (jumps) {
        in_handler = 0;
        tick();
        siglongjmp(back, 1);
    }
    if ((fd = IN(open(handled, O_WRONLY | O_APPEND | O_CREAT, 0644))) >= 0) {
        if (IN(write(fd, "h", 1)) == 1) written++;
        IN(fstat(fd, &known));
        IN(close(fd));
    }
    if (!away) IN(stat("handled", &known));
    /* One that stays open from signal to signal is closed amid whatever goes on. */
    if (left >= 0) IN(close(left));
    left = IN(open(here, O_RDONLY));
    char byte;
    IN(read(left, &byte, 1));
    fd = IN(open("/dev/null", O_WRONLY));
    IN(write(fd, "n", 1));
    IN(dup2(fd, fd));
    IN(close(fd));
    umask(022);
    in_handler = 0;
    tick();
    errno = before;
}

static void barked(int number) {
    (void)number;
    say("it hangs in ");
    say(group);
    say(": ");
    say(doing);
    say(in_handler ? ", in the handler\n" : ", in the program\n");
    _exit(4);
}

static void paths(void) {
    struct stat known;
    char path[4300];
    DO(mkdir("folder", 0755));
    DO(stat("folder/../here", &known));
    DO(lstat("./folder//.", &known));
    snprintf(path, sizeof path, "%s/folder/../here", top);
    DO(access(path, R_OK));
    DO(symlink("here", "folder/link"));
    DO(readlink("folder/link", path, sizeof path));
    DO(link("here", "folder/hard"));
    DO(rename("folder/hard", "folder/harder"));
    DO(chmod("folder/harder", 0600));
    DO(utimensat(AT_FDCWD, "folder/harder", NULL, 0));
    DO(setxattr("folder/harder", "user.key", "value", 5, 0));
    DO(getxattr("folder/harder", "user.key", path, sizeof path));
    DO(mkfifo("folder/fifo", 0600));
    DO(truncate("folder/harder", 10));
    DO(unlink("folder/fifo"));
    DO(unlink("folder/link"));
    DO(unlink("folder/harder"));
    away = 1;
    DO(chdir("folder"));
    free(getcwd(NULL, 0));
    free(realpath("../here", NULL));
    DO(chdir(".."));
    away = 0;
    DO(rmdir("folder"));
    DO(open("none/such", O_RDONLY) < 0 && errno == ENOENT ? 0 : -1);
    DO(umask(022));
}

static void kernels(void) {
    int fd = DO(open("/tmp", O_RDONLY | O_DIRECTORY)), other;
    struct stat known;
    away = 1;
    DO(fchdir(fd));
    if (stat("../no such thing", &known) == 0) surprise("what is not there", 0);
    DO(other = open("../tmp/.", O_RDONLY));
    DO(close(other));
    DO(chdir(top));
    away = 0;
    DO(close(fd));
}

static void descriptors(void) {
    char byte;
    int fd = DO(open("bytes", O_RDWR | O_CREAT | O_TRUNC, 0644)), other;
    for (int at = 0; at < 50; at++) {
        if (DO(write(fd, "b", 1)) != 1) surprise("a byte", 0);
    }
    if (DO(lseek(fd, 0, SEEK_END)) != 50) surprise("lost bytes", 0);
    DO(pwrite(fd, "p", 1, 100));
    if (DO(pread(fd, &byte, 1, 100)) != 1 || byte != 'p') surprise("another byte", 0);
    DO(other = dup(fd));
    DO(dup2(fd, other));
    DO(fcntl(other, F_SETFL, O_APPEND));
    DO(fsync(fd));
    DO(ftruncate(fd, 70));
    DO(fallocate(fd, 0, 0, 5000));
    DO(close(other));
    DO(close(fd));
    DO(unlink("bytes"));
}

static void transfers(void) {
    char some[300] = "some";
    struct iovec two[2] = {{some, 100}, {some, 200}};
    off_t from = 0, to = 0;
    int fd = DO(open("from", O_RDWR | O_CREAT | O_TRUNC, 0644)), ends[2];
    int other = DO(open("to", O_RDWR | O_CREAT | O_TRUNC, 0644));
    if (DO(writev(fd, two, 2)) != 300) surprise("lost bytes", 0);
    if (DO(copy_file_range(fd, &from, other, &to, 300, 0)) != 300) surprise("lost bytes", 0);
    from = 0;
    if (DO(sendfile(other, fd, &from, 300)) != 300) surprise("lost bytes", 0);
    DO(lseek(fd, 0, SEEK_SET));
    if (DO(readv(fd, two, 2)) != 300) surprise("lost bytes", 0);
    DO(pipe(ends));
    from = 0;
    if (DO(splice(fd, &from, ends[1], NULL, 300, 0)) != 300) surprise("lost bytes", 0);
    to = 0;
    if (DO(splice(ends[0], NULL, other, &to, 300, 0)) != 300) surprise("lost bytes", 0);
    DO(close(ends[0]));
    DO(close(ends[1]));
    DO(close(fd));
    DO(close(other));
}

static void streams(void) {
    char line[100];
    FILE *file = fopen("stream", "w+");
    if (file == NULL) surprise("fopen", errno);
    for (int at = 0; at < 2000; at++) DO(fprintf(file, "line %d\n", at));
    DO(fflush(file));
    rewind(file);
    for (int at = 0; at < 2000; at++) {
        int found = -1;
        if (fgets(line, sizeof line, file) == NULL || sscanf(line, "line %d", &found) != 1 ||
            found != at)
            surprise("another line", errno);
    }
    DO(fclose(file));
    DO(unlink("stream"));
}

static void folders(void) {
    struct dirent **names;
    int count = 0;
    DIR *open = opendir(".");
    while (readdir(open) != NULL) count++;
    if (count < 4) surprise("lost names", 0);
    DO(closedir(open));
    DO(count = scandir(".", &names, NULL, alphasort));
    while (count-- > 0) free(names[count]);
    free(names);
}

static int count_one(const char *path, const struct stat *known, int kind, struct FTW *place) {
    (void)path, (void)known, (void)kind, (void)place;
    return 0;
}

static void walks(void) {
    glob_t found;
    DO(nftw(".", count_one, 10, FTW_PHYS));
    DO(glob("h*", 0, NULL, &found) == 0 ? 0 : -1);
    globfree(&found);
}

static void maps(void) {
    int fd = DO(open("map", O_RDWR | O_CREAT, 0644));
    DO(ftruncate(fd, 20000));
    char *bytes = mmap(NULL, 20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) surprise("mmap", errno);
    bytes[10000]++;
    DO(msync(bytes, 20000, MS_SYNC));
    DO(mprotect(bytes, 4096, PROT_READ));
    DO(munmap(bytes, 20000));
    char *memory = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DO(munmap(memory, 8192));
    DO(close(fd));
}

static void locks(void) {
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};
    int fd = DO(open("here", O_RDWR)), other = DO(open("here", O_RDWR));
    DO(fcntl(fd, F_SETLK, &range));
    range.l_type = F_UNLCK;
    DO(fcntl(fd, F_SETLK, &range));
    DO(flock(fd, LOCK_EX));
    DO(flock(fd, LOCK_UN));
    DO(close(other));
    DO(close(fd));
}

static void waits(void) {
    int fd = DO(open("here", O_RDWR)), status;
    DO(flock(fd, LOCK_EX));
    pid_t child = DO(fork());
    if (child == 0) {
        int own = open("here", O_RDWR);
        snprintf(handled, sizeof handled, "%s/handled by a child", top);
        /* Its parent's handler restarts what it interrupts: so does the child's, who waits. */
        setitimer(ITIMER_REAL, &(struct itimerval){{0, 500}, {0, 500}}, NULL);
        _exit(flock(own, LOCK_EX) == 0 ? 0 : 1);
    }
    usleep(20000);
    DO(flock(fd, LOCK_UN));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (status != 0) surprise("a lock that is waited for", WEXITSTATUS(status));
    DO(close(fd));
}

static void children(void) {
    char *words[] = {"true", NULL};
    int status;
    pid_t child = DO(fork());
    if (child == 0) {
        int fd = open("child", O_WRONLY | O_CREAT | O_APPEND, 0644);
        _exit(write(fd, "c", 1) == 1 ? 0 : 1);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (status != 0) surprise("a child", status);
    DO(posix_spawnp(&child, "true", NULL, NULL, words, environ) == 0 ? 0 : -1);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (status != 0) surprise("a program", status);
    /* None is blocked in what is started: this program blocks none. */
    char line[100] = "";
    FILE *said = popen("grep SigBlk: /proc/self/status", "r");
    fgets(line, sizeof line, said);
    if (strcmp(line, "SigBlk:\t0000000000000000\n") != 0) surprise("blocked signals", 0);
    while (pclose(said) < 0 && errno == EINTR) continue;
}

static void temporary(void) {
    char name[] = "XXXXXX", folder[] = "XXXXXX";
    int fd;
    DO(fd = mkstemp(name));
    DO(close(fd));
    DO(unlink(name));
    if (mkdtemp(folder) == NULL) surprise("mkdtemp", errno);
    DO(rmdir(folder));
}

/* The C library's own memory, amid whose functions a handler may open a file. */
static void memory(void) {
    void *some[200] = {NULL};
    for (int round = 0; round < 200; round++)
        for (int at = 0; at < 200; at++) {
            free(some[at]);
            some[at] = malloc((at * 7919 + round * 104729) % 5000 + 1);
        }
    for (int at = 0; at < 200; at++) free(some[at]);
}

/* A handler leaves by a jump: what it has left may be called again. */
static void jumped(void) {
    for (volatile int at = 0; at < 300; at++) {
        if (sigsetjmp(back, 1) == 0) {
            jumps = 1;
            for (int more = 0; more < 100; more++) {
                mkdir("jumped", 0755);
                rmdir("jumped");
                access("here", R_OK);
            }
        }
        jumps = 0;
    }
    rmdir("jumped");
}

/* The number of the error that a call leaves is its own, whatever a handler does meanwhile. */
static void errors(void) {
    for (int at = 0; at < 200; at++) {
        if (open("none", O_RDONLY) >= 0 || errno != ENOENT) surprise("not ENOENT", errno);
        if (mkdir("here", 0755) == 0 || errno != EEXIST) surprise("not EEXIST", errno);
        errno = 77;
        access("here", R_OK);
        if (errno != 77) surprise("errno of a call that does not fail", errno);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
    int rounds;
} groups[] = {
    {"paths", paths, ROUNDS}, {"the kernel's", kernels, ROUNDS},
    {"descriptors", descriptors, ROUNDS}, {"transfers", transfers, ROUNDS},
    {"streams", streams, 5}, {"folders", folders, ROUNDS}, {"walks", walks, ROUNDS},
    {"maps", maps, ROUNDS}, {"locks", locks, ROUNDS}, {"waits", waits, 3},
    {"children", children, 5}, {"temporary files", temporary, ROUNDS}, {"memory", memory, 20},
    {"errors", errors, 1}, {"jumps", jumped, 1},
};

int main(int argc, char **argv) {
    const struct itimerspec never = {{0, 0}, {0, 0}};
    struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    struct itimerspec patience = {{0, 0}, {PATIENCE, 0}};
    struct stat known;
    timer_t watchdog;
    const char *only = argc > 2 ? argv[2] : NULL;
    if (argc < 2 || chdir(argv[1]) != 0) return 2;
    snprintf(top, sizeof top, "%s", argv[1]);
    snprintf(handled, sizeof handled, "%s/handled", top);
    snprintf(here, sizeof here, "%s/here", top);
    close(open("handled", O_WRONLY | O_CREAT | O_TRUNC, 0644));
    int fd = open("here", O_WRONLY | O_CREAT, 0644);
    if (write(fd, "0123456789", 10) != 10) return 2;
    close(fd);
    sigaction(SIGALRM, &action, NULL);
    action.sa_handler = barked;
    sigaction(SIGUSR2, &action, NULL);
    timer_create(CLOCK_MONOTONIC, &event, &watchdog);
    event.sigev_signo = SIGALRM;
    timer_create(CLOCK_MONOTONIC, &event, &ticking);
    for (size_t at = 0; at < sizeof groups / sizeof *groups; at++) {
        if (only != NULL && strcmp(only, groups[at].name) != 0) continue;
        group = groups[at].name;
        timer_settime(watchdog, 0, &patience, NULL);
        tick();
        for (int round = 0; round < groups[at].rounds; round++) groups[at].run();
        timer_settime(ticking, 0, &never, NULL);
        if (argc > 3) fprintf(stderr, "%s: %ld signals so far\n", group, handlings);
    }
    stat("handled", &known);
    printf("%d surprises, %ld bytes lost\n", surprises, written - (long)known.st_size);
    return 0;
}
