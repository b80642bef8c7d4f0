/* A signal handler opens and reads folders while the program does: nobody waits for the other. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static DIR *folder;
static const char *top;
static volatile int surprises;

static void handle(int number) {
    int before = errno;
    (void)number;
    errno = 0;
    if (readdir(folder) == NULL && errno != 0 && errno != EDEADLK) surprises++;
    errno = 0;
    DIR *other = opendir(top);
    if (other != NULL) {
        closedir(other);
    } else if (errno != EDEADLK) {
        surprises++;
    }
    errno = before;
}

int main(int argc, char **argv) {
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    struct sigaction action;
    if (argc != 2 || chdir(argv[1]) != 0) return 2;
    top = argv[1];
    for (int i = 0; i < 300; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0644));
    }
    folder = opendir(".");
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < 300; i++) {
        rewinddir(folder);
        while (readdir(folder) != NULL) continue;
        DIR *other = opendir(".");
        telldir(other);
        closedir(other);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    printf("surprises: %d\n", surprises);
    return 0;
}
