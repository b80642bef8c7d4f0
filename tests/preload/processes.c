/* What a child has of its parent's files, however it is begun: run once in a folder of the kernel's
 * and once in one of a pool, and says the same. It is given its folder, and is its own child: then
 * a word says what that one does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char self[4096], *folder;
static char texts[16][4096];

/* A path below the folder. */
static char *at(const char *name) {
	static int next;
	char *text = texts[next++ % 16];
	snprintf(text, sizeof texts[0], "%s/%s", folder, name);
	return text;
}

static void say(const char *what, long value) {
	printf("%s: %ld\n", what, value);
	fflush(stdout);
}

/* What a call has returned, and why it has failed. */
static void result(const char *what, long value) {
	if (value < 0)
		printf("%s: %s\n", what, strerrorname_np(errno));
	else
		printf("%s: %ld\n", what, value);
	fflush(stdout);
}

static void fill(const char *name, const char *text, int mode) {
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		perror("fill");
	fchmod(fd, mode);
	close(fd);
}

static void show(const char *name) {
	char text[4096];
	int fd = open(at(name), O_RDONLY);
	ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	text[size < 0 ? 0 : size] = 0;
	printf("%s (%zd): %s\n", name, size, text);
	fflush(stdout);
	close(fd);
}

static void waited(const char *what, pid_t pid) {
	int status = -1;
	if (pid < 0) {
		result(what, pid);
		return;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	say(what, WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

static int child_work(int argc, char **argv) {
	char text[256];
	(void)argc;
	if (!strcmp(argv[2], "write")) {
		int fd = atoi(argv[3]);
		return write(fd, argv[4], strlen(argv[4])) == (ssize_t)strlen(argv[4]) ? 0 : errno;
	}
	if (!strcmp(argv[2], "numbers")) {
		for (int fd = 0; fd < 20; fd++)
			if (fcntl(fd, F_GETFD) >= 0)
				printf("%d ", fd);
		printf("are open\n");
		return 0;
	}
	if (!strcmp(argv[2], "copy")) {
		ssize_t size;
		while ((size = read(0, text, sizeof text)) > 0)
			if (write(1, text, size) != size)
				return 1;
		return size < 0 ? errno : 0;
	}
	if (!strcmp(argv[2], "here")) {
		struct stat stat_;
		result("in its folder", stat("here", &stat_) < 0 ? -1 : stat_.st_size);
		printf("%s\n", getenv("GIVEN") ? getenv("GIVEN") : "nothing given");
		return 0;
	}
	if (!strcmp(argv[2], "late")) {
		usleep(200000);
		ssize_t size = read(atoi(argv[3]), text, sizeof text);
		printf("late: %zd %.*s\n", size, (int)(size < 0 ? 0 : size), text);
		return 0;
	}
	if (!strcmp(argv[2], "receive")) {
		char byte, room[CMSG_SPACE(sizeof(int))];
		struct iovec part = {&byte, 1};
		struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
					 .msg_controllen = sizeof room};
		if (recvmsg(atoi(argv[3]), &message, 0) < 0)
			return errno;
		int fd;
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
		return write(fd, argv[4], strlen(argv[4])) < 0 ? errno : 0;
	}
	return 99;
}

static void run(char *word, char *one, char *two) {
	char *list[] = {self, folder, word, one, two, NULL};
	execv(self, list);
	_exit(errno);
}

static void offsets(void) {
	int fd = open(at("offset"), O_RDWR | O_CREAT | O_TRUNC, 0600), copy = dup(fd);
	write(fd, "ab", 2);
	pid_t pid = fork();
	if (pid == 0)
		_exit(write(fd, "cd", 2) != 2);
	waited("fork", pid);
	say("offset after fork", lseek(fd, 0, SEEK_CUR));
	write(copy, "ef", 2);
	say("offset after dup", lseek(fd, 0, SEEK_CUR));
	char number[16];
	snprintf(number, sizeof number, "%d", fd);
	if ((pid = fork()) == 0)
		run("write", number, "gh");
	waited("exec", pid);
	say("offset after exec", lseek(copy, 0, SEEK_CUR));
	if ((pid = vfork()) == 0)
		run("write", number, "ij");
	waited("vfork", pid);
	say("offset after vfork", lseek(fd, 0, SEEK_CUR));
	char *list[] = {self, folder, "write", number, "kl", NULL};
	say("posix_spawn", posix_spawn(&pid, self, NULL, NULL, list, environ));
	waited("spawned", pid);
	say("offset after posix_spawn", lseek(fd, 0, SEEK_CUR));
	fcntl(fd, F_SETFL, O_APPEND);
	say("flags are shared", fcntl(copy, F_GETFL) & O_APPEND);
	if ((pid = fork()) == 0) {
		if (fork() == 0) {
			lseek(fd, 1, SEEK_SET);
			_exit(0);
		}
		wait(NULL);
		_exit(lseek(fd, 0, SEEK_CUR));
	}
	waited("offset in a child of a child", pid);
	say("offset of the parent", lseek(copy, 0, SEEK_CUR));
	close(fd);
	close(copy);
	show("offset");
}

static void numbers(void) {
	int kept = open(at("kept"), O_RDWR | O_CREAT, 0600);
	int closed = open(at("closed"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	dup2(kept, 10);
	dup3(kept, 11, O_CLOEXEC);
	dup2(closed, 12);
	fcntl(closed, F_DUPFD_CLOEXEC, 13);
	pid_t pid = fork();
	if (pid == 0)
		run("numbers", NULL, NULL);
	waited("numbers", pid);
	if ((pid = fork()) == 0) {
		close_range(5, ~0U, 0);
		run("numbers", NULL, NULL);
	}
	waited("after close_range", pid);
	for (int fd = 3; fd < 20; fd++)
		close(fd);
}

static void streams(void) {
	fill("input", "from the file\n", 0600);
	pid_t pid = fork();
	if (pid == 0) {
		int in = open(at("input"), O_RDONLY);
		int out = open(at("output"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(in, 0);
		dup2(out, 1);
		dup2(1, 2);
		close(in);
		close(out);
		run("copy", NULL, NULL);
	}
	waited("onto the streams", pid);
	show("output");
}

static void spawned(void) {
	posix_spawn_file_actions_t actions;
	pid_t pid;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addchdir_np(&actions, folder);
	posix_spawn_file_actions_addopen(&actions, 0, "input", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&actions, 9, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&actions, 9, 1);
	posix_spawn_file_actions_addclose(&actions, 9);
	char *list[] = {self, folder, "copy", NULL}, *here[] = {self, folder, "here", NULL};
	say("by actions", posix_spawn(&pid, self, &actions, NULL, list, environ));
	waited("has ended", pid);
	posix_spawn_file_actions_destroy(&actions);
	show("spawned");
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 5, at("nothing"), O_RDONLY, 0);
	say("what is not there", posix_spawn(&pid, self, &actions, NULL, list, environ));
	posix_spawn_file_actions_destroy(&actions);
	say("no program", posix_spawnp(&pid, "no-such-program", NULL, NULL, list, environ));
	say("a bad number", posix_spawn_file_actions_addclose(&actions, -1));
	fill("here", "12345", 0600);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addchdir_np(&actions, folder);
	char *environment[] = {"GIVEN=a variable", NULL};
	posix_spawnattr_t how;
	posix_spawnattr_init(&how);
	posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
	int why = posix_spawn(&pid, self, &actions, &how, here, environment);
	waited("elsewhere", pid);
	say("was started", why);
	posix_spawn_file_actions_destroy(&actions);
}

static void nameless(void) {
	char number[16];
	int fd = open(at("gone"), O_RDWR | O_CREAT, 0600);
	write(fd, "still here", 10);
	lseek(fd, 6, SEEK_SET);
	unlink(at("gone"));
	snprintf(number, sizeof number, "%d", fd);
	pid_t pid = fork();
	if (pid == 0)
		run("late", number, NULL);
	close(fd);
	waited("a nameless file, closed by its maker", pid);
	fd = open(at("gone"), O_RDWR | O_CREAT, 0600);
	unlink(at("gone"));
	snprintf(number, sizeof number, "%d", fd);
	if ((pid = fork()) == 0) {
		execl(at("nothing"), "nothing", NULL);
		run("write", number, "by the child");
	}
	waited("a nameless file, written by a child", pid);
	char text[64];
	ssize_t size = pread(fd, text, sizeof text, 0);
	printf("%zd %.*s\n", size, (int)size, text);
	say("its offset", lseek(fd, 0, SEEK_CUR));
	/* Two programs, one after the other, in one process. */
	pwrite(fd, "by nobody at all", 16, 0);
	lseek(fd, 3, SEEK_SET);
	if ((pid = fork()) == 0) {
		dup2(fd, 0);
		close(fd);
		execl("/bin/sh", "sh", "-c", "exec cat", NULL);
	}
	close(fd);
	waited("through two programs", pid);
	printf("\n");
}

static void send_to(int socket, int fd) {
	char byte = 'x', room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
				 .msg_controllen = sizeof room};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &fd, sizeof fd);
	result("sent", sendmsg(socket, &message, 0));
}

static void passed(void) {
	int ends[2];
	char number[16];
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	int fd = open(at("before"), O_RDWR | O_CREAT, 0600);
	close(fd);
	snprintf(number, sizeof number, "%d", ends[1]);
	pid_t pid = fork();
	if (pid == 0)
		run("receive", number, "over a socket");
	fd = open(at("passed"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	write(fd, "first, ", 7);
	send_to(ends[0], fd);
	waited("a program received it", pid);
	say("its offset", lseek(fd, 0, SEEK_CUR));
	if ((pid = fork()) == 0) {
		close(fd);
		char *list[] = {self, folder, "receive", number, ", twice", NULL};
		_exit(child_work(5, list));
	}
	send_to(ends[0], fd);
	waited("a fork received it", pid);
	say("close-on-exec", fcntl(fd, F_GETFD));
	close(fd);
	show("passed");
}

static void copy_file(const char *from, const char *name) {
	static char piece[65536];
	ssize_t size;
	int in = open(from, O_RDONLY), out = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0700);
	while ((size = read(in, piece, sizeof piece)) > 0)
		if (write(out, piece, size) != size)
			perror("copy");
	close(in);
	close(out);
}

#define CHILD(what, call)                                                                         \
	do {                                                                                      \
		pid_t pid_ = fork();                                                              \
		if (pid_ == 0) {                                                                  \
			call;                                                                     \
			printf("%s: %s\n", what, strerrorname_np(errno));                         \
			fflush(stdout);                                                           \
			_exit(77);                                                                \
		}                                                                                 \
		waited(what, pid_);                                                               \
	} while (0)

static void programs(void) {
	char *environment[] = {"GIVEN=more", NULL};
	copy_file(self, "program");
	fill("script", "#!/bin/sh -e\necho a script: $1 $2 $#\n", 0700);
	fill("plain", "echo no interpreter: $1\n", 0700);
	fill("private", "#!/bin/sh\n", 0600);
	fill("garbage", "\001\002\003", 0700);
	char line[4200];
	snprintf(line, sizeof line, "#!%s one\n", at("script"));
	fill("chain", line, 0700);
	fill("here", "1234567", 0600);
	chdir(folder);
	CHILD("a program", execl(at("program"), "program", folder, "here", NULL));
	CHILD("by a relative path", execle("./program", "p", folder, "here", NULL, environment));
	CHILD("a script", execl(at("script"), "script", "a", "b c", NULL));
	CHILD("a script of a script", execl("chain", "chain", "two", NULL));
	CHILD("a shell's script", execlp("./plain", "plain", "three", NULL));
	CHILD("no shell's script", execl("./plain", "plain", "three", NULL));
	CHILD("not to be run", execl(at("private"), "private", NULL));
	CHILD("a folder", execl(folder, "folder", NULL));
	CHILD("nothing", execl(at("nothing"), "nothing", NULL));
	CHILD("below a file", execl(at("here/x"), "x", NULL));
	CHILD("garbage", execl(at("garbage"), "garbage", NULL));
	CHILD("many", execl(at("script"), "script", "1", "2", "3", "4", "5", "6", "7", "8", NULL));
	chdir("/");
	char path[4200];
	snprintf(path, sizeof path, "/nowhere:%s:/bin:/usr/bin", folder);
	setenv("PATH", path, 1);
	CHILD("in PATH", execlp("script", "script", "x", NULL));
	CHILD("denied in PATH", execlp("private", "private", NULL));
	CHILD("not in PATH", execlp("no-such-program", "no", NULL));
	CHILD("no name", execlp("", "no", NULL));
	char *list[] = {"program", folder, "numbers", NULL};
	CHILD("execvp", execvp("program", list));
	int fd = open(at("program"), O_RDONLY | O_CLOEXEC);
	CHILD("fexecve", fexecve(fd, list, environ));
	close(fd);
	fd = open(folder, O_PATH | O_DIRECTORY);
	CHILD("execveat", syscall(SYS_execveat, fd, "program", list, environ, 0));
	close(fd);
	pid_t pid;
	int why = posix_spawnp(&pid, "program", NULL, NULL, list, environ);
	waited("posix_spawnp", pid);
	say("was started", why);
}

static int in_clone(void *given) {
	return write(*(int *)given, "cloned ", 7) == 7 ? 5 : 6;
}

static void others(void) {
	static char stack[65536] __attribute__((aligned(16)));
	char command[5000], text[256];
	int fd = open(at("cloned"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char *top = stack + sizeof stack;
	waited("clone", clone(in_clone, top, SIGCHLD, &fd));
	waited("clone, vfork", clone(in_clone, top, CLONE_VM | CLONE_VFORK | SIGCHLD, &fd));
	waited("clone, sharing", clone(in_clone, top, CLONE_FS | SIGCHLD, &fd));
	say("offset", lseek(fd, 0, SEEK_CUR));
	close(fd);
	snprintf(command, sizeof command, "cat < %s > %s; exit 3", at("cloned"), at("by-system"));
	say("system", WEXITSTATUS(system(command)));
	say("a shell is there", system(NULL));
	show("by-system");
	chdir(folder);
	FILE *stream = popen("cat cloned; exit 4", "r");
	size_t size = fread(text, 1, sizeof text, stream);
	printf("popen: %.*s\n", (int)size, text);
	say("pclose", WEXITSTATUS(pclose(stream)));
	stream = popen("cat > by-popen", "w");
	fputs("through a pipe", stream);
	say("pclose", WEXITSTATUS(pclose(stream)));
	show("by-popen");
	chdir("/");
	pid_t pid = fork();
	if (pid == 0) {
		fd = open(at("daemon"), O_RDWR | O_CREAT | O_TRUNC, 0600);
		dup2(fd, 1);
		if (daemon(0, 1) == 0)
			_exit(write(1, "in the background", 17) != 17);
	}
	waited("daemon's parent", pid);
	usleep(300000);
	show("daemon");
	fd = syscall(SYS_openat, AT_FDCWD, at("by-number"), O_RDWR | O_CREAT, 0600);
	say("written by number", syscall(SYS_write, fd, "12345", 5));
	say("offset by number", syscall(SYS_lseek, fd, 1, SEEK_SET));
	say("read by number", syscall(SYS_read, fd, text, 10));
	say("closed by number", syscall(SYS_close, fd));
	result("closed twice", syscall(SYS_close, fd));
}

int main(int argc, char **argv) {
	folder = argv[1];
	if (argc > 2)
		return child_work(argc, argv);
	ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
	self[size] = 0;
	say("offsets", 1);
	offsets();
	numbers();
	streams();
	spawned();
	nameless();
	passed();
	programs();
	others();
	return 0;
}
