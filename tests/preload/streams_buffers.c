/* Buffers, places, pushing back, switching, flags, lines, and forks with bytes yet to write. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4096];

static long size_of(void) {
    struct stat stat_;
    return stat(path, &stat_) == 0 ? (long)stat_.st_size : -1;
}

static void show(const char *what) {
    FILE *f = fopen(path, "r");
    char text[200];
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    printf("%s: %zu '%s'\n", what, n, text);
    if (f) {
        fclose(f);
    }
}

static void buffering(int kind, size_t size, const char *name) {
    FILE *f = fopen(path, "w");
    static char room[4096];
    printf("%s: setvbuf %d\n", name, setvbuf(f, size ? room : NULL, kind, size));
    fputs("abc", f);
    printf("after word %ld pending %zu line=%d\n", size_of(), __fpending(f), __flbf(f) != 0);
    fputs("def\nghi", f);
    printf("after line %ld pending %zu\n", size_of(), __fpending(f));
    for (int i = 0; i < 3000; i++) {
        fputc('x', f);
    }
    if (size) {
        printf("after many %ld pending %zu room %zu\n", size_of(), __fpending(f), __fbufsize(f));
    }
    fflush(f);
    printf("after flush %ld pending %zu\n", size_of(), __fpending(f));
    fputs("lost", f);
    if (kind != _IONBF) {
        __fpurge(f);
    }
    printf("close %d", fclose(f));
    printf(" size %ld\n", size_of());
}

static void switching(void) {
    FILE *f = fopen(path, "w+");
    fputs("one two three four\nfive\n", f);
    rewind(f);
    char word[32];
    int number = fscanf(f, "%31s", word);
    printf("%d '%s' at %ld\n", number, word, ftell(f));
    fseek(f, 0, SEEK_CUR);
    fputs("-TWO", f);
    printf("at %ld\n", ftell(f));
    fflush(f);
    fseek(f, 0, SEEK_CUR);
    fgets(word, sizeof word, f);
    printf("rest '%s' at %ld\n", word, ftell(f));
    int c = getc(f);
    ungetc('Q', f);
    ungetc('R', f);
    ungetc('S', f);
    printf("had %c at %ld now ", c, ftell(f));
    for (int i = 0; i < 4; i++) {
        printf("%c", getc(f));
    }
    printf(" at %ld\n", ftell(f));
    fpos_t place;
    fgetpos(f, &place);
    while (getc(f) != EOF) {
    }
    printf("eof %d\n", feof(f) != 0);
    printf("unget at end %d", ungetc('!', f));
    printf(" eof %d\n", feof(f) != 0);
    fsetpos(f, &place);
    printf("back '%c'", getc(f));
    printf(" eof %d\n", feof(f) != 0);
    printf("past end %d", fseek(f, 100, SEEK_SET));
    printf(" at %ld\n", ftell(f));
    fputc('E', f);
    fclose(f);
    printf("size %ld\n", size_of());
    f = fopen(path, "r+");
    fseek(f, 3, SEEK_SET);
    c = getc(f);
    putc('#', f);
    fflush(f);
    printf("number's place %ld\n", (long)lseek(fileno(f), 0, SEEK_CUR));
    fclose(f);
    f = fopen(path, "r");
    getc(f);
    getc(f);
    fflush(f);
    printf("flush of a reader leaves %ld\n", (long)lseek(fileno(f), 0, SEEK_CUR));
    fclose(f);
}

static void append(void) {
    unlink(path);
    FILE *a = fopen(path, "a");
    FILE *b = fopen(path, "a+");
    fputs("one", a);
    fflush(a);
    fputs("two", b);
    fflush(b);
    fputs("three", a);
    printf("at %ld\n", ftell(a));
    fflush(a);
    rewind(b);
    char text[32] = "";
    size_t n = fread(text, 1, 5, b);
    printf("%zu '%s'\n", n, text);
    fseek(b, 0, SEEK_SET);
    fputs("four", b);
    printf("at %ld\n", ftell(b));
    fclose(a);
    fclose(b);
    show("appended");
}

static void large(void) {
    FILE *f = fopen(path, "w+");
    unsigned sum = 0, back = 0;
    static char block[100000];
    for (int i = 0; i < 50; i++) {
        for (size_t j = 0; j < sizeof block; j++) {
            block[j] = (char)(i * 31 + j * 7);
            sum = sum * 33 + (unsigned char)block[j];
        }
        size_t step = i % 3 == 0 ? sizeof block : 777;
        for (size_t j = 0; j < sizeof block; j += step) {
            size_t rest = sizeof block - j < step ? sizeof block - j : step;
            if (fwrite(block + j, 1, rest, f) != rest) {
                printf("short\n");
            }
        }
    }
    printf("written at %ld\n", ftell(f));
    rewind(f);
    int c;
    while ((c = getc(f)) != EOF) {
        back = back * 33 + (unsigned)c;
    }
    printf("same %d size %ld\n", sum == back, size_of());
    fseek(f, -10, SEEK_END);
    printf("near end %zu", fread(block, 1, sizeof block, f));
    printf(" at %ld\n", ftell(f));
    printf("far %d", fseeko(f, 5000000000LL, SEEK_SET));
    printf(" at %lld\n", (long long)ftello(f));
    fputc('x', f);
    fflush(f);
    printf("size %ld\n", size_of());
    printf("truncate %d", ftruncate(fileno(f), 10));
    printf(" size %ld", size_of());
    printf(" close %d\n", fclose(f));
}

static void lines(void) {
    FILE *f = fopen(path, "w");
    fprintf(f, "%s %d %.2f\n", "line", 42, 3.14159);
    fprintf(f, "a;b;;c");
    fputs("\nlast without end", f);
    fclose(f);
    f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n = getline(&line, &room, f);
    printf("getline %zd %s", n, line);
    for (int i = 0; i < 4; i++) {
        n = getdelim(&line, &room, ';', f);
        printf("getdelim %zd '%s'\n", n, n > 0 ? line : "");
    }
    printf("eof %d error %d\n", feof(f) != 0, ferror(f) != 0);
    rewind(f);
    char word[16];
    int number;
    float real;
    printf("scanf %d", fscanf(f, "%15s %d %f", word, &number, &real));
    printf(" %s %d %.2f\n", word, number, real);
    printf("mismatch %d", fscanf(f, "%d", &number));
    printf(" next %d\n", getc(f));
    free(line);
    fclose(f);
}

static void forks(void) {
    FILE *f = fopen(path, "w");
    fputs("before;", f);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fputs("child;", f);
        exit(0);
    }
    waitpid(child, NULL, 0);
    fputs("parent;", f);
    child = fork();
    if (child == 0) {
        fputs("never;", f);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    fclose(f);
    show("forked");
}

static FILE *shared;
static int seen[4];

static void *reads(void *at) {
    char text[64];
    while (fgets(text, sizeof text, shared) != NULL) {
        if (strcmp(text, "a line of twenty-odd bytes\n") == 0) {
            seen[(long)at]++;
        }
    }
    return NULL;
}

static void *writes(void *at) {
    for (int i = 0; i < 2000; i++) {
        flockfile(shared);
        fputs_unlocked("a line of ", shared);
        fputs_unlocked("twenty-odd bytes\n", shared);
        funlockfile(shared);
    }
    return at;
}

static void threads(void) {
    pthread_t all[4];
    shared = fopen(path, "w");
    for (long i = 0; i < 4; i++) {
        pthread_create(&all[i], NULL, writes, (void *)i);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(all[i], NULL);
    }
    fclose(shared);
    shared = fopen(path, "r");
    for (long i = 0; i < 4; i++) {
        pthread_create(&all[i], NULL, reads, (void *)i);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(all[i], NULL);
    }
    fclose(shared);
    printf("lines %d\n", seen[0] + seen[1] + seen[2] + seen[3]);
}

static void failures(void) {
    int fd = open(path, O_RDWR | O_TRUNC);
    FILE *f = fdopen(fd, "w");
    fputs("text", f);
    close(fd);
    errno = 0;
    int done = fflush(f);
    printf("flush to a closed number %d errno=%d error=%d\n", done, errno, ferror(f) != 0);
    errno = 0;
    done = fclose(f);
    printf("close %d errno=%d\n", done, errno);
    f = fopen(path, "r");
    int other = open(path, O_WRONLY);
    write(other, "from another", 12);
    dup2(other, fileno(f));
    errno = 0;
    int c = getc(f);
    printf("number moved: %d errno=%d error=%d\n", c, errno, ferror(f) != 0);
    fclose(f);
    close(other);
    printf("number is %d\n", dprintf(open(path, O_WRONLY | O_APPEND), " and %s %d", "more", 7));
    show("has");
    errno = 0;
    done = dprintf(open(path, O_RDONLY), "x");
    printf("dprintf to a reader %d errno=%d\n", done, errno);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(path, sizeof path, "%s/file", argv[argc - 1]);
    buffering(_IOFBF, 0, "full");
    buffering(_IOFBF, 1000, "thousand");
    buffering(_IOLBF, 0, "line");
    buffering(_IOLBF, 100, "line of a hundred");
    buffering(_IONBF, 0, "none");
    switching();
    append();
    large();
    lines();
    forks();
    threads();
    failures();
    return 0;
}
