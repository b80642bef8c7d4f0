/* Locks of files, and when they go: run once in a folder of the kernel's and once in one of a pool,
 * and says the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESS, OPEN, WHOLE };
static const char *const means[] = {"fcntl", "ofd", "flock"};
static char path[4200];

static int opened(void) {
	return open(path, O_RDWR | O_CREAT, 0600);
}

static int locked(int fd, int by) {
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	if (by == WHOLE)
		return flock(fd, LOCK_EX | LOCK_NB);
	return fcntl(fd, by == PROCESS ? F_SETLK : F_OFD_SETLK, &all);
}

/* Another program: another process, and another description. */
static void other(const char *what, int by) {
	pid_t pid = fork();
	int status;
	if (pid == 0)
		_exit(locked(opened(), by) == 0 ? 0 : errno == EAGAIN || errno == EACCES ? 1 : errno);
	waitpid(pid, &status, 0);
	status = WEXITSTATUS(status);
	const char *found = !status ? "free" : status == 1 ? "locked" : strerror(status);
	printf("%s, %s: %s\n", means[by], what, found);
	fflush(stdout);
}

/* A child that goes on until it is told to do the next thing, and to end. */
struct child {
	pid_t pid;
	int tell, told;
};

static struct child child_that(void (*first)(int), int fd) {
	int down[2], up[2];
	char word;
	pipe(down);
	pipe(up);
	struct child child = {fork(), down[1], up[0]};
	if (child.pid == 0) {
		close(down[1]);
		close(up[0]);
		write(up[1], "", 1);
		while (read(down[0], &word, 1) == 1 && word == '+') {
			first(fd);
			write(up[1], "", 1);
		}
		_exit(0);
	}
	close(down[0]);
	close(up[1]);
	read(child.told, &word, 1);
	return child;
}

static void go_on(struct child *child) {
	char word;
	write(child->tell, "+", 1);
	read(child->told, &word, 1);
}

static void end(struct child *child) {
	write(child->tell, "-", 1);
	waitpid(child->pid, NULL, 0);
	close(child->tell);
	close(child->told);
}

static void lets_go(int fd) {
	close(fd);
}

static void unlocks(int fd) {
	flock(fd, LOCK_UN);
}

static void descriptors(int by) {
	int fd = opened(), more, null = open("/dev/null", O_RDWR);
	printf("%s: %d\n", means[by], locked(fd, by));
	other("taken", by);
	more = dup(fd);
	close(more);
	other("a copy is closed", by);
	locked(fd, by);
	close(opened());
	other("the file was opened and closed", by);
	locked(fd, by);
	more = dup(fd);
	close(fd);
	other("a copy is left", by);
	close(more);
	other("none is left", by);
	fd = opened();
	locked(fd, by);
	dup2(fd, fd);
	other("copied onto itself", by);
	dup2(null, fd);
	other("something else has its number", by);
	close(fd);
	fd = opened();
	locked(fd, by);
	close_range(fd, fd, 0);
	other("a range was closed", by);
	close(null);
}

static void children(int by) {
	int fd = opened();
	locked(fd, by);
	struct child child = child_that(lets_go, fd);
	other("a child was forked", by);
	close(fd);
	other("its parent has closed it", by);
	go_on(&child);
	other("the child has, too", by);
	end(&child);

	fd = opened();
	locked(fd, by);
	child = child_that(lets_go, fd);
	go_on(&child);
	other("a child has closed it", by);
	end(&child);
	other("and has ended", by);
	close(fd);
	other("its parent has closed it after that", by);
}

/* Whoever has the lock is killed, and has a child. */
static void the_killed(int by) {
	int up[2], fd;
	pid_t grandchild;
	pipe(up);
	pid_t pid = fork();
	if (pid == 0) {
		fd = opened();
		locked(fd, by);
		grandchild = fork();
		if (grandchild == 0) {
			grandchild = getpid();
			write(up[1], &grandchild, sizeof grandchild);
			for (;;)
				pause();
		}
		for (;;)
			pause();
	}
	read(up[0], &grandchild, sizeof grandchild);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	other("killed, with a child that goes on", by);
	kill(grandchild, SIGKILL);
	while (kill(grandchild, 0) == 0 && waitpid(grandchild, NULL, WNOHANG) >= 0)
		usleep(1000);
	usleep(20000);
	other("the child, too", by);
	close(up[0]);
	close(up[1]);
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 2;
	for (int by = PROCESS; by <= WHOLE; by++) {
		snprintf(path, sizeof path, "%s/%s", argv[1], means[by]);
		descriptors(by);
		children(by);
		the_killed(by);
	}
	int fd = opened();
	locked(fd, WHOLE);
	struct child child = child_that(unlocks, fd);
	go_on(&child);
	other("a child has unlocked it", WHOLE);
	end(&child);
	return 0;
}
