/* Commands of the shell with a pipe, beside threads that close and open files meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stop;
static int failed;

/* A number goes from a file below the prefix to one of memory, again and again. */
static void *closes_and_opens(void *given)
{
    while (!stop) {
        int fd = open("there", O_RDONLY);
        close(fd);
        fd = memfd_create("elsewhere", 0);
        if (pwrite(fd, "data", 4, 0) != 4) failed = errno;
        close(fd);
    }
    return given;
}

/* Where the kernel says that a number is. */
static long place(int fd)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    int info = open(path, O_RDONLY);
    read(info, text, sizeof text - 1);
    close(info);
    char *at = strstr(text, "pos:");
    return at ? atol(at + 4) : -1;
}

static void modes(void)
{
    const char *all[] = {"", "x", "rw", "r+", "r", "re", "er", "w", "we", "ww"};
    for (int i = 0; i < 10; i++) {
        errno = 0;
        FILE *stream = popen("exit 3", all[i]);
        printf("%s: %s", all[i], stream ? "a stream" : strerror(errno));
        if (stream) printf(", %d", fcntl(fileno(stream), F_GETFD));
        if (stream) printf(", %d", WEXITSTATUS(pclose(stream)));
        puts("");
    }
}

static void ends(void)
{
    char text[64] = "", command[64];
    FILE *first = popen("cat > told", "w");
    snprintf(command, sizeof command, "test -e /proc/self/fd/%d && echo there || echo not there",
             fileno(first));
    FILE *second = popen(command, "r");
    fgets(text, sizeof text, second);
    printf("the first one's pipe is %s", text);
    fputs("some text", first);
    printf("%d %d\n", fclose(first), pclose(second));
    first = popen("cat told; kill -9 $$", "r");
    printf("%s ", fgets(text, sizeof text, first));
    printf("%d\n", fclose(first));
    printf("%s\n", waitpid(-1, NULL, 0) < 0 ? strerror(errno) : "a child");
}

/* The shell's input or output is closed here. */
static void closed(void)
{
    char text[64] = "";
    int kept = dup(0);
    close(0);
    FILE *stream = popen("cat > told", "w");
    fputs("by zero\n", stream);
    printf("%d\n", pclose(stream));
    dup2(kept, 0);
    close(kept);
    stream = popen("cat told", "r");
    printf("%s", fgets(text, sizeof text, stream));
    pclose(stream);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    if (argc < 2 || chdir(argv[1]) != 0) return 1;
    int fd = open("there", O_RDWR | O_CREAT, 0600);
    write(fd, "line\n", 5);
    long before = place(fd);
    pclose(popen("cat there", "r"));
    puts(place(fd) == before ? "the number is what it was" : "the number is another");
    modes();
    ends();
    closed();
    pthread_t thread;
    pthread_create(&thread, NULL, closes_and_opens, NULL);
    for (int i = 0; i < 100; i++) pclose(popen(":", "r"));
    stop = 1;
    pthread_join(thread, NULL);
    puts(strerror(failed));
    return 0;
}
