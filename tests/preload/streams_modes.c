/* Opening by every mode; what each reads, writes and refuses. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

static char path[4096];

static void show(const char *what) {
    FILE *f = fopen(path, "r");
    printf("%s: ", what);
    if (f == NULL) {
        printf("no file, %d\n", errno);
        return;
    }
    int c;
    while ((c = getc(f)) != EOF) {
        printf(c < 32 || c > 126 ? "\\%02x" : "%c", c);
    }
    printf(" eof=%d error=%d", feof(f) != 0, ferror(f) != 0);
    printf(" close=%d\n", fclose(f));
}

static void fill(const char *text) {
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

static void try_mode(const char *mode, int there) {
    unlink(path);
    if (there) {
        fill("0123456789");
    }
    errno = 0;
    FILE *f = fopen(path, mode);
    printf("-- %s there=%d: %s errno=%d\n", mode, there, f ? "opened" : "refused", errno);
    if (f == NULL) {
        return;
    }
    int flags = fcntl(fileno(f), F_GETFL);
    printf("access=%d append=%d cloexec=%d readable=%d writable=%d\n", flags & O_ACCMODE,
           (flags & O_APPEND) != 0, fcntl(fileno(f), F_GETFD), __freadable(f) != 0,
           __fwritable(f) != 0);
    printf("at %ld\n", ftell(f));
    char text[16] = "";
    errno = 0;
    size_t n = fread(text, 1, 3, f);
    printf("read %zu '%s' errno=%d eof=%d error=%d at=%ld\n", n, text, errno, feof(f) != 0,
           ferror(f) != 0, ftell(f));
    clearerr(f);
    fseek(f, 0, SEEK_CUR);
    errno = 0;
    n = fwrite("ABC", 1, 3, f);
    printf("wrote %zu errno=%d error=%d at=%ld\n", n, errno, ferror(f) != 0, ftell(f));
    clearerr(f);
    printf("seek %d", fseek(f, 1, SEEK_SET));
    printf(" at=%ld\n", ftell(f));
    n = fwrite("z", 1, 1, f);
    printf("wrote %zu at=%ld\n", n, ftell(f));
    printf("end %d", fseek(f, -2, SEEK_END));
    printf(" at=%ld\n", ftell(f));
    clearerr(f);
    printf("next %d\n", getc(f));
    errno = 0;
    printf("before %d", fseek(f, -100, SEEK_SET));
    printf(" errno=%d\n", errno);
    printf("flush %d", fflush(f));
    printf(" close %d\n", fclose(f));
    show("has");
    struct stat stat_;
    stat(path, &stat_);
    printf("mode %o size %ld\n", stat_.st_mode, (long)stat_.st_size);
}

static void by_number(int flags, const char *mode) {
    fill("0123456789");
    int fd = open(path, flags);
    errno = 0;
    FILE *f = fdopen(fd, mode);
    printf("fdopen %o %s: %s errno=%d\n", flags, mode, f ? "opened" : "refused", errno);
    if (f == NULL) {
        close(fd);
        return;
    }
    printf("same number %d append %d\n", fileno(f) == fd,
           (fcntl(fd, F_GETFL) & O_APPEND) != 0);
    fputs("xy", f);
    fflush(f);
    clearerr(f);
    rewind(f);
    printf("first %d\n", getc(f));
    printf("close %d", fclose(f));
    printf(" again %d", close(fd));
    printf(" errno=%d\n", errno);
    show("has");
}

static void encodings(void) {
    unlink(path);
    FILE *f = fopen(path, "w,ccs=UTF-16LE");
    printf("ccs %d %d\n", f != NULL, f ? fwide(f, 0) : 0);
    if (f != NULL) {
        printf("%d ", fputws(L"a\x20ac\U0001f600\n", f) >= 0);
        printf("%d ", fputwc(L'z', f) == L'z');
        printf("%d\n", fclose(f));
    }
    show("utf-16");
    f = fopen(path, "r,ccs=UTF-16LE");
    wint_t c;
    while ((c = fgetwc(f)) != WEOF) {
        printf("%x ", c);
    }
    printf("eof=%d", feof(f) != 0);
    printf(" close=%d\n", fclose(f));
    errno = 0;
    f = fopen(path, "r,ccs=NO-SUCH-ENCODING");
    printf("unknown %d errno=%d\n", f != NULL, errno);
    f = fopen(path, "w,ccs=ISO-8859-1");
    printf("latin %d", fputws(L"\x00e9\x20ac", f) >= 0);
    printf(" %d\n", fclose(f));
    show("latin");
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    setlocale(LC_ALL, "C.UTF-8");
    snprintf(path, sizeof path, "%s/file", argv[argc - 1]);
    const char *modes[] = {"r",  "r+",  "w",   "w+",  "a",     "a+",    "rb",  "rb+", "r+b",
                           "wb", "wx",  "w+x", "wxe", "re",    "rm",    "rc",  "ax",  "a+b",
                           "q",  "",    "rw",  "r,x", "wbe+x", "rmmmm+"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        try_mode(modes[i], 0);
        try_mode(modes[i], 1);
    }
    by_number(O_RDONLY, "r");
    by_number(O_RDONLY, "w");
    by_number(O_RDONLY, "r+");
    by_number(O_WRONLY, "w");
    by_number(O_WRONLY, "r");
    by_number(O_WRONLY, "a");
    by_number(O_RDWR, "r+");
    by_number(O_RDWR, "a+");
    by_number(O_RDWR, "q");
    errno = 0;
    printf("closed number: %d", fdopen(999, "r") != NULL);
    printf(" errno=%d\n", errno);
    encodings();
    errno = 0;
    FILE *f = fopen(argv[argc - 1], "r");
    printf("folder %d", f != NULL);
    errno = 0;
    int c = getc(f);
    printf(" %d errno=%d error=%d", c, errno, ferror(f) != 0);
    printf(" close=%d\n", fclose(f));
    errno = 0;
    f = fopen(argv[argc - 1], "w");
    printf("folder to write %d errno=%d\n", f != NULL, errno);
    return 0;
}
