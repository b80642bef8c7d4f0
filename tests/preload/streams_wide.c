/* Wide characters. */
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

static char path[4096];

static void show(const char *what) {
    FILE *f = fopen(path, "r");
    int c;
    printf("%s: ", what);
    while ((c = getc(f)) != EOF) {
        printf(c < 32 || c > 126 ? "\\%02x" : "%c", c);
    }
    printf("\n");
    fclose(f);
}

static void written(void) {
    FILE *f = fopen(path, "w");
    printf("orientation %d", fwide(f, 0));
    printf(" then %d", fwide(f, 1) > 0);
    printf(" stays %d\n", fwide(f, -1) > 0);
    printf("%d\n", fwprintf(f, L"%ls %d %lc %s|", L"w\x00f6rt", 42, 0x20ac, "narrow"));
    printf("%d\n", fputws(L"\U0001f600 string\n", f) >= 0);
    printf("%x", fputwc(L'\x00e4', f));
    printf(" %x\n", putwc(L'b', f));
    printf("%d", fwprintf(f, L"%*d\n", 5, 7));
    printf(" at %ld\n", ftell(f));
    printf("close %d\n", fclose(f));
    show("written");
}

static void read_back(void) {
    FILE *f = fopen(path, "r");
    wchar_t line[64];
    printf("%x", fgetwc(f));
    printf(" %x\n", getwc(f));
    printf("unget %x", ungetwc(0x20ac, f));
    printf(" then %x\n", fgetwc(f));
    printf("line %d", fgetws(line, 64, f) != NULL);
    printf(" length %zu", wcslen(line));
    for (wchar_t *c = line; *c; c++) {
        printf(" %x", (unsigned)*c);
    }
    printf("\nshort %d", fgetws(line, 3, f) != NULL);
    printf(" length %zu\n", wcslen(line));
    while (fgetwc(f) != WEOF) {
    }
    printf("eof %d error %d", feof(f) != 0, ferror(f) != 0);
    printf(" more %d\n", fgetws(line, 64, f) != NULL);
    rewind(f);
    printf("again %x", fgetwc(f));
    printf(" at %ld\n", ftell(f));
    fclose(f);
}

static void bad(void) {
    FILE *f = fopen(path, "w");
    fputs("a\xff" "b", f);
    fclose(f);
    f = fopen(path, "r");
    errno = 0;
    wint_t first = fgetwc(f);
    wint_t second = fgetwc(f);
    printf("%x %x errno=%d error=%d eof=%d\n", first, second, errno, ferror(f) != 0, feof(f) != 0);
    fclose(f);
    f = fopen(path, "w");
    fputs("a\xe2\x82", f);
    fclose(f);
    f = fopen(path, "r");
    errno = 0;
    first = fgetwc(f);
    second = fgetwc(f);
    printf("%x %x errno=%d error=%d eof=%d\n", first, second, errno, ferror(f) != 0, feof(f) != 0);
    fclose(f);
    f = fopen(path, "r");
    getc(f);
    printf("used for bytes %d", fwide(f, 0) < 0);
    printf(" wide %x\n", fgetwc(f));
    fclose(f);
    f = fopen(path, "r");
    printf("no writer %x", fputwc(L'x', f));
    printf(" error %d\n", ferror(f) != 0);
    fclose(f);
}

static void many(void) {
    FILE *f = fopen(path, "w+");
    for (int i = 0; i < 20000; i++) {
        fputwc(i % 3 == 0 ? L'a' + i % 26 : 0x100 + i % 2000, f);
    }
    rewind(f);
    int wrong = 0;
    for (int i = 0; i < 20000; i++) {
        wint_t wanted = i % 3 == 0 ? L'a' + i % 26 : 0x100 + i % 2000;
        wrong += fgetwc(f) != wanted;
    }
    printf("wrong %d", wrong);
    printf(" end %x\n", fgetwc(f));
    fclose(f);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(path, sizeof path, "%s/file", argv[argc - 1]);
    setlocale(LC_ALL, "C.UTF-8");
    written();
    read_back();
    bad();
    many();
    setlocale(LC_ALL, "C");
    FILE *f = fopen(path, "w");
    printf("in C %d", fputws(L"a\x00e9z", f) >= 0);
    printf(" close %d\n", fclose(f));
    show("in C");
    return 0;
}
