/* A program becomes itself again and again, while its threads write: what it has open stays, also
 * without a name. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[4200];

static void *write_on(void *number) {
	char name[4300], text[512];
	snprintf(name, sizeof name, "%s-%ld", path, (long)number);
	memset(text, 'x', sizeof text);
	for (;;) {
		int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		for (int at = 0; at < 20; at++)
			if (write(fd, text, sizeof text) != sizeof text)
				perror("write");
		unlink(name);
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv) {
	int left = argc > 2 ? atoi(argv[2]) : 10, fd = argc > 3 ? atoi(argv[3]) : -1;
	char number[16], open_as[16], text[64];
	pthread_t thread;
	snprintf(path, sizeof path, "%s/chain", argv[1]);
	if (fd < 0) {
		fd = open(path, O_RDWR | O_CREAT, 0600);
		unlink(path);
	}
	snprintf(text, sizeof text, "%d ", left);
	if (write(fd, text, strlen(text)) < 0)
		perror("write on");
	if (left == 0) {
		char all[4096];
		ssize_t size = pread(fd, all, sizeof all, 0);
		printf("%.*s\n", (int)(size < 0 ? 0 : size), all);
		return size < 0;
	}
	for (long at = 0; at < 3; at++)
		pthread_create(&thread, NULL, write_on, (void *)at);
	usleep(5000 * (left % 5));
	snprintf(number, sizeof number, "%d", left - 1);
	snprintf(open_as, sizeof open_as, "%d", fd);
	execl("/proc/self/exe", argv[0], argv[1], number, open_as, NULL);
	perror("exec");
	return 1;
}
