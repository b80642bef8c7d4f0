/* A file that is mapped while another process cuts it: what is behind its end is SIGBUS to touch,
 * and nothing else. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 60 };

static sigjmp_buf back;

static void behind_the_end(int signal) {
	(void)signal;
	siglongjmp(back, 1);
}

int main(int argc, char **argv) {
	char path[4200];
	int rounds = argc > 2 ? atoi(argv[2]) : 1000;
	snprintf(path, sizeof path, "%s/cut", argv[1]);
	int fd = open(path, O_RDWR | O_CREAT, 0600);
	pid_t cutter = fork();
	if (cutter == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			ftruncate(fd, PAGES * PAGE);
			ftruncate(fd, PAGE);
		}
	}
	signal(SIGBUS, behind_the_end);
	volatile int maps = 0;
	for (volatile int round = 0; round < rounds; round++) {
		char *map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map == MAP_FAILED)
			continue;
		maps++;
		if (!sigsetjmp(back, 1))
			for (int page = PAGES; page-- > 0;)
				*(volatile char *)(map + page * PAGE) = 'x';
		munmap(map, PAGES * PAGE);
	}
	kill(cutter, SIGKILL);
	waitpid(cutter, NULL, 0);
	printf("%s\n", maps > rounds / 2 ? "mapped" : "hardly ever mapped");
	return 0;
}
