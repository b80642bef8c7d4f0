/* A library that lies in the folder. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
	char path[4200];
	(void)argc;
	snprintf(path, sizeof path, "%s/library.so", argv[1]);
	void *one = dlopen(path, RTLD_NOW), *two;
	int (*answer)(void) = one ? (int (*)(void))dlsym(one, "answer") : NULL;
	printf("%d\n", answer ? answer() : -1);
	chdir(argv[1]);
	two = dlopen("./library.so", RTLD_NOW | RTLD_NOLOAD);
	printf("%s\n", one == two ? "the same" : "another");
	two = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
	answer = two ? (int (*)(void))dlsym(two, "answer") : NULL;
	printf("%d, %s\n", answer ? answer() : -1, one == two ? "the same" : "another");
	printf("%s\n", dlopen("./nothing.so", RTLD_NOW) ? "there" : "not there");
	printf("%s\n", dlopen("libm.so.6", RTLD_NOW) ? "there" : "not there");
	return 0;
}
