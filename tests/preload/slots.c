/* Children that are killed with files open: what they had is there for others again. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4200];

/* Opens files until a number is reached. */
static int open_many(int most) {
	for (int at = 0; at < most; at++)
		if (open(path, O_RDWR) < 0)
			return errno;
	return 0;
}

int main(int argc, char **argv) {
	int rounds = argc > 2 ? atoi(argv[2]) : 100, each = argc > 3 ? atoi(argv[3]) : 100;
	snprintf(path, sizeof path, "%s/many", argv[1]);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	for (int round = 0; round < rounds; round++) {
		int ends[2], status, why = 0;
		pipe(ends);
		pid_t pid = fork();
		if (pid == 0) {
			why = open_many(each);
			write(ends[1], &why, sizeof why);
			pause();
		}
		if (pid < 0 || read(ends[0], &why, sizeof why) != sizeof why || why) {
			printf("round %d: %s\n", round, strerror(why ? why : errno));
			return 1;
		}
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		close(ends[0]);
		close(ends[1]);
	}
	printf("offset %ld, and %d more\n", (long)lseek(fd, 0, SEEK_CUR), open_many(each));
	return 0;
}
