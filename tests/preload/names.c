/* Names as mdtest makes them: `names FOLDER PROCESSES ITEMS` has each of some processes make so many
   empty files in one folder, look at them and remove them, all of a phase at once. It prints how
   many of a phase were done in a second by all together. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const phases[] = {"create", "stat", "remove"};

static int done(int phase, const char *name)
{
    struct stat about;
    switch (phase) {
    case 0: {
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        return fd < 0 ? -1 : close(fd);
    }
    case 1:
        return stat(name, &about) == 0 && about.st_size == 0 && about.st_nlink == 1 ? 0 : -1;
    default:
        return unlink(name);
    }
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static long names_in(const char *folder)
{
    long count = 0;
    DIR *stream = opendir(folder);
    if (!stream)
        return -1;
    for (struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.';
    closedir(stream);
    return count;
}

int main(int count, char **given)
{
    if (count < 4 || chdir(given[1]) != 0)
        return 2;
    int processes = atoi(given[2]);
    long items = atol(given[3]);
    for (int phase = 0; phase < 3; phase++) {
        double begun = now();
        for (int process = 0; process < processes; process++) {
            if (fork() != 0)
                continue;
            for (long item = 0; item < items; item++) {
                char name[64];
                snprintf(name, sizeof name, "file.mdtest.%d.%ld", process, item);
                if (done(phase, name) != 0) {
                    perror(name);
                    _exit(1);
                }
            }
            _exit(0);
        }
        for (int process = 0; process < processes; process++) {
            int status;
            if (wait(&status) < 0 || status != 0)
                return 1;
        }
        printf("%s %.0f\n", phases[phase], (double)(items * processes) / (now() - begun));
        if (names_in(".") != (phase == 2 ? 0 : items * processes)) {
            fprintf(stderr, "%s: other names than were made\n", phases[phase]);
            return 1;
        }
    }
    return 0;
}
