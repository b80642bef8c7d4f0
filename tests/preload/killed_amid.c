/* Children that are killed amid a write by an offset that they share with their parent, who has not
 * yet asked for them when it writes itself. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[1 << 20];

int main(int argc, char **argv) {
	char path[4200];
	int rounds = argc > 2 ? atoi(argv[2]) : 100;
	snprintf(path, sizeof path, "%s/amid", argv[1]);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2];
	memset(bytes, 'x', sizeof bytes);
	for (int round = 0; round < rounds; round++) {
		char word;
		pipe(ends);
		pid_t pid = fork();
		if (pid == 0) {
			/* What a child does first takes longer than it is left to live: it is amid its writes. */
			lseek(fd, 0, SEEK_SET);
			write(fd, bytes, sizeof bytes);
			write(ends[1], "", 1);
			for (;;) {
				lseek(fd, 0, SEEK_SET);
				write(fd, bytes, sizeof bytes);
			}
		}
		read(ends[0], &word, 1);
		usleep(round % 7 * 300);
		kill(pid, SIGKILL);
		lseek(fd, 3, SEEK_SET);
		if (write(fd, "parent", 6) != 6) {
			perror("write");
			return 1;
		}
		waitpid(pid, NULL, 0);
		close(ends[0]);
		close(ends[1]);
	}
	char text[10] = "";
	pread(fd, text, 9, 0);
	printf("offset %ld, %s\n", (long)lseek(fd, 0, SEEK_CUR), text);
	return 0;
}
