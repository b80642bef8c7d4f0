/* Locks of descriptions that several processes have, and locks that go on in another program: run
 * once in a folder of the kernel's and once in one of a pool, and says the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESS, OPEN, WHOLE };
static const char *const means[] = {"fcntl", "ofd", "flock"};
static char path[4200], *self;

static int opened(int flags) {
	return open(path, O_RDWR | O_CREAT | flags, 0600);
}

static int changed(int fd, int by, int kind) {
	struct flock some = {.l_type = kind, .l_whence = SEEK_SET, .l_start = 5, .l_len = 10};
	if (by == WHOLE)
		return flock(fd, kind == F_UNLCK ? LOCK_UN : LOCK_EX | LOCK_NB);
	return fcntl(fd, by == PROCESS ? F_SETLK : F_OFD_SETLK, &some);
}

static int locked(int fd, int by) {
	return changed(fd, by, F_WRLCK);
}

static int ended(pid_t pid) {
	int status;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* Another program: another process, and another description. */
static void other(const char *what, int by) {
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		_exit(locked(opened(0), by) == 0 ? 0 : errno == EAGAIN || errno == EACCES ? 1 : errno);
	int status = ended(pid);
	const char *found = !status ? "free" : status == 1 ? "locked" : strerror(status);
	printf("%s, %s: %s\n", means[by], what, found);
	fflush(stdout);
}

/* What this program does when it is run again, with a descriptor of its parent's. */
static int again(char **argv) {
	int fd = atoi(argv[3]), by = atoi(argv[4]);
	struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	switch (*argv[2]) {
	case 'l':
		return locked(fd, by) != 0;
	case 'u':
		return changed(fd, by, F_UNLCK) != 0;
	case 'a':
		return fcntl(fd, F_OFD_GETLK, &asked) != 0 || asked.l_type != F_UNLCK;
	case 'k':
		locked(fd, by);
		raise(SIGKILL);
		return 9;
	case 'o':
		other("by what the process has become", by);
		close(opened(0));
		other("it has opened and closed the file", by);
		return 0;
	case 'f':
		/* A child that was forked of it, and has closed nothing. */
		if (fork() == 0) {
			other("a child, as the lock is of its parent", by);
			_exit(0);
		}
		wait(NULL);
		return 0;
	case 'w':
		close(1);
		for (;;)
			pause();
	}
	return 2;
}

static char *numbers(int fd, int by, char *word) {
	sprintf(word, "%d", fd);
	sprintf(word + 16, "%d", by);
	return word;
}

static void become(const char *what, int fd, int by) {
	char word[32];
	numbers(fd, by, word);
	execl(self, self, path, what, word, word + 16, NULL);
	_exit(99);
}

/* A child that becomes this program, as a shell begins it. */
static pid_t begun(const char *what, int fd, int by) {
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		become(what, fd, by);
	return pid;
}

static int run(const char *what, int fd, int by) {
	return ended(begun(what, fd, by));
}

static void taken_by_children(int by) {
	int fd = opened(0);
	printf("%d ", run("lock", fd, by));
	other("a program has taken it, and ended", by);
	printf("%d %d ", run("lock", fd, by), locked(fd, by));
	other("it is taken once more", by);
	if (by == OPEN)
		printf("in the way of its own: %d\n", run("ask", fd, by));
	printf("%d ", run("unlock", fd, by));
	other("another program has let go of it", by);
	printf("%d ", locked(fd, by));
	printf("%d ", run("unlock", fd, by));
	other("and of what its parent has taken", by);
	printf("%d ", run("killed", fd, by));
	other("a program has taken it, and was killed", by);
	close(fd);
	other("closed", by);

	fd = opened(0);
	fflush(stdout);
	if (fork() == 0) {
		locked(fd, by);
		_exit(0);
	}
	wait(NULL);
	other("a child has taken it, and ended", by);
	pid_t pid = begun("wait", fd, by);
	close(fd);
	other("closed, and a child has it", by);
	kill(pid, SIGKILL);
	ended(pid);
	other("that was killed", by);
}

/* Its own child takes the lock for a process that is killed. */
static void the_killed(int by) {
	int up[2];
	char word;
	pipe(up);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = opened(0);
		run("lock", fd, by);
		write(up[1], "", 1);
		for (;;)
			pause();
	}
	read(up[0], &word, 1);
	other("another process's child has taken it", by);
	kill(pid, SIGKILL);
	ended(pid);
	other("that process was killed", by);
	close(up[0]);
	close(up[1]);
}

static void other_ways_to_start(int by) {
	extern char **environ;
	char word[32], command[5000];
	int fd = opened(0);
	pid_t pid;
	numbers(fd, by, word);
	char *given[] = {self, path, "lock", word, word + 16, NULL};
	printf("%d ", posix_spawn(&pid, self, NULL, NULL, given, environ));
	printf("%d ", ended(pid));
	other("taken by one that was spawned", by);
	close(fd);
	other("closed", by);

	fd = opened(0);
	sprintf(command, "'%s' '%s' lock %d %d", self, path, fd, by);
	printf("%d ", system(command));
	other("taken by a command", by);
	close(fd);
	other("closed", by);

	fd = opened(0);
	sprintf(command, "'%s' '%s' lock %d %d", self, path, fd, by);
	printf("%d ", pclose(popen(command, "r")));
	other("taken through popen", by);
	close(fd);
	other("closed", by);

	fd = opened(0);
	printf("%d ", locked(fd, by));
	sprintf(command, "'%s' '%s' unlock %d %d", self, path, fd, by);
	printf("%d ", pclose(popen(command, "r")));
	other("let go of through popen", by);
	close(fd);
}

/* What this process has locked goes on in the program that it becomes. */
static void becomes(int by, int flags, const char *what) {
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int fd = opened(0);
		opened(flags);
		locked(fd, by);
		become(what, fd, by);
	}
	ended(pid);
	other("it has ended", by);
}

/* A process lets go of the descriptor while its child becomes another program. */
static void amid_exec(int by) {
	int lost = 0;
	for (int round = 0; round < 100; round++) {
		int fd = opened(0), status = 1;
		locked(fd, by);
		pid_t pid = begun("wait", fd, by);
		usleep(round * 50);
		close(fd);
		fflush(stdout);
		pid_t prober = fork();
		if (prober == 0)
			_exit(locked(opened(0), by) == 0);
		status = ended(prober);
		lost += status;
		kill(pid, SIGKILL);
		ended(pid);
	}
	printf("%s, lost amid exec: %d\n", means[by], lost);
}

static void not_inherited(int by) {
	int fd = opened(0);
	printf("%d ", locked(fd, by));
	/* What was started or could not be before makes no difference. */
	printf("%d ", by == OPEN ? pclose(popen(":", "r")) : execl("/nowhere", "nowhere", NULL));
	printf("%d ", locked(fd, by));
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	pid_t pid = begun("wait", fd, by);
	char word = 0, stat[64];
	sprintf(stat, "/proc/%d/cmdline", pid);
	/* Until it is another program, it has the descriptor. */
	while (word != 'w') {
		char line[9000];
		int from = open(stat, O_RDONLY), size = read(from, line, sizeof line);
		close(from);
		for (int at = 0, part = 0; at < size; at += strlen(line + at) + 1)
			if (part++ == 2)
				word = line[at];
	}
	close(fd);
	other("a program that inherits nothing goes on", by);
	kill(pid, SIGKILL);
	ended(pid);
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 2;
	self = argv[0];
	if (argc == 5) {
		strcpy(path, argv[1]);
		return again(argv);
	}
	for (int by = PROCESS; by <= WHOLE; by++) {
		snprintf(path, sizeof path, "%s/%s", argv[1], means[by]);
		becomes(by, 0, "other");
		becomes(by, O_CLOEXEC, "other");
		becomes(by, 0, "fork");
		taken_by_children(by);
		the_killed(by);
		other_ways_to_start(by);
		not_inherited(by);
		if (by != PROCESS)
			amid_exec(by);
	}
	return 0;
}
