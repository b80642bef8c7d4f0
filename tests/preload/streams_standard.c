/* The standard streams, led to files and back. What is told goes to a copy of number 1. */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <error.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

static FILE *told;
static char path[4096], other[4096];

static void show(const char *what, const char *name) {
    int fd = open(name, O_RDONLY);
    char text[2000];
    ssize_t n = read(fd, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    fprintf(told, "%s: %zd '%s'\n", what, n, text);
    fflush(told);
    close(fd);
}

static void to_number(int to, const char *name, int flags) {
    int fd = open(name, flags, 0644);
    dup2(fd, to);
    if (fd != to) {
        close(fd);
    }
}

static void out_and_back(void) {
    int kept = dup(1);
    to_number(1, other, O_WRONLY | O_CREAT | O_TRUNC);
    printf("to the file;");
    puts("a line");
    putchar('c');
    fwrite("fwrite;", 1, 7, stdout);
    fprintf(told, "pending %zu number %d\n", __fpending(stdout), fileno(stdout));
    fflush(stdout);
    show("flushed", other);
    printf("pending before the number goes back;");
    int own = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(own, 1);
    printf("pending goes on;");
    fflush(stdout);
    show("first", other);
    show("second", path);
    dup2(kept, 1);
    close(own);
    close(kept);
}

static void unbuffered(void) {
    int kept = dup(2);
    to_number(2, other, O_WRONLY | O_CREAT | O_TRUNC);
    fprintf(stderr, "straight;");
    show("stderr", other);
    errno = ENOENT;
    perror("perror");
    warn("warn");
    warnx("warnx %d", 5);
    error(0, EPERM, "error %s", "x");
    psignal(SIGTERM, "psignal");
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGSEGV;
    info.si_code = SEGV_MAPERR;
    psiginfo(&info, "psiginfo");
    h_errno = HOST_NOT_FOUND;
    herror("herror");
    char *arguments[] = {"program", "-z", NULL};
    getopt(2, arguments, "a");
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    char text[4000];
    int fd = open(other, O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    close(fd);
    /* Messages begin with the program's path. */
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *colon = strstr(line, "streams_standard: ");
        char *name = strstr(line, " address ");
        if (name != NULL) {
            *name = 0;
        }
        fprintf(told, "| %s\n", colon != NULL ? colon : line);
    }
}

static void in_and_back(void) {
    int fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "first line\nsecond line\nthird line\n", 34);
    close(fd);
    int kept = dup(0);
    to_number(0, other, O_RDONLY);
    char line[64] = "";
    fprintf(told, "%d ", fgets(line, sizeof line, stdin) != NULL);
    fprintf(told, "'%s' ", line);
    fprintf(told, "%d ", scanf("%63s", line));
    fprintf(told, "'%s' at %ld\n", line, ftell(stdin));
    ungetc('U', stdin);
    int c = getchar(), d = getchar();
    fprintf(told, "%c %c\n", c, d);
    /* What was read ahead is still read when the number is of another file. */
    to_number(0, "/dev/null", O_RDONLY);
    fprintf(told, "%d ", fgets(line, sizeof line, stdin) != NULL);
    fprintf(told, "'%s'\n", line);
    while ((c = getchar()) != EOF) {
    }
    fprintf(told, "eof %d\n", feof(stdin) != 0);
    clearerr(stdin);
    to_number(0, other, O_RDONLY);
    fprintf(told, "%d ", fgets(line, sizeof line, stdin) != NULL);
    fprintf(told, "'%s'\n", line);
    dup2(kept, 0);
    close(kept);
}

static void again(void) {
    FILE *f = freopen(other, "w", stdout);
    fprintf(told, "freopen %d same %d number %d\n", f != NULL, f == stdout, fileno(stdout));
    printf("by freopen;");
    f = freopen(path, "w", stdout);
    printf("by freopen again;");
    fflush(stdout);
    show("first", other);
    show("second", path);
    errno = 0;
    f = freopen(NULL, "a", stdout);
    fprintf(told, "mode %d\n", f != NULL);
    printf("appended;");
    f = freopen("/dev/null", "w", stdout);
    fprintf(told, "null %d number %d\n", f != NULL, fileno(stdout));
    show("second", path);
    printf("gone");
    fflush(stdout);
    f = freopen(path, "r", stdin);
    char text[64] = "";
    fprintf(told, "stdin %d %d", f != NULL, fgets(text, sizeof text, stdin) != NULL);
    fprintf(told, " '%s'\n", text);
    f = freopen(other, "r", f);
    fprintf(told, "again %d %d", f != NULL, fgets(text, sizeof text, stdin) != NULL);
    fprintf(told, " '%s'\n", text);
    errno = 0;
    f = freopen("/no/such/file", "r", stdin);
    fprintf(told, "none %d errno=%d\n", f != NULL, errno);
}

static void others(void) {
    FILE *f = fopen(path, "w+");
    fputs("one", f);
    FILE *g = freopen(other, "w+", f);
    fprintf(told, "other file %d same %d\n", g != NULL, g == f);
    fputs("two", g);
    fflush(g);
    show("one", path);
    show("two", other);
    rewind(g);
    fprintf(told, "read %c\n", getc(g));
    g = freopen(path, "r", g);
    fprintf(told, "read %c write %d\n", getc(g), fputc('x', g));
    g = freopen(NULL, "r+", g);
    fprintf(told, "update %d read %c", g != NULL, g ? getc(g) : '-');
    fseek(g, 0, SEEK_CUR);
    fprintf(told, " write %d\n", fputc('x', g));
    g = freopen("/dev/null", "r", g);
    fprintf(told, "null %d %d\n", g != NULL, getc(g));
    g = freopen(path, "a", g);
    fputs("end", g);
    fprintf(told, "close %d\n", fclose(g));
    show("one", path);
    f = fopen(path, "r");
    errno = 0;
    g = freopen("/no/such/file", "r", f);
    fprintf(told, "none %d errno=%d\n", g != NULL, errno);
}

static void lowest(void) {
    int kept = dup(1);
    fflush(stdout);
    close(1);
    int fd = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    fprintf(told, "lowest is %d\n", fd);
    printf("at number one;");
    fflush(stdout);
    show("has", other);
    printf("exit of a child;");
    pid_t child = fork();
    if (child == 0) {
        exit(0);
    }
    waitpid(child, NULL, 0);
    dup2(kept, 1);
    close(kept);
    __fpurge(stdout);
    show("has", other);
}

static void traced(void) {
    int fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
    void *addresses[2] = {(void *)traced, (void *)printf};
    backtrace_symbols_fd(addresses, 2, fd);
    char text[4096];
    ssize_t n = pread(fd, text, sizeof text, 0);
    int count = 0;
    for (ssize_t i = 0; i < n; i++) {
        count += text[i] == '\n';
    }
    fprintf(told, "backtrace %d\n", count);
    close(fd);
}

static void wide_standard(void) {
    fwide(stdout, 1);
    to_number(1, other, O_WRONLY | O_CREAT | O_TRUNC);
    wprintf(L"wide %d;", 1);
    putwchar(L'c');
    fprintf(told, "orientation %d\n", fwide(stdout, 0) > 0);
    fflush(stdout);
    show("wide", other);
    fprintf(told, "close %d\n", fclose(stdout));
}

int main(int argc, char **argv) {
    int fd = dup(1);
    told = fdopen(fcntl(fd, F_DUPFD, 30), "w");
    close(fd);
    setvbuf(told, NULL, _IONBF, 0);
    snprintf(path, sizeof path, "%s/one", argv[argc - 1]);
    snprintf(other, sizeof other, "%s/two", argv[argc - 1]);
    out_and_back();
    unbuffered();
    in_and_back();
    lowest();
    traced();
    others();
    int kept = dup(1);
    again();
    dup2(kept, 1);
    clearerr(stdout);
    fflush(stdout);
    freopen("/dev/null", "w", stdout);
    wide_standard();
    return 0;
}
