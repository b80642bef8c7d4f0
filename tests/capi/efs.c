/* Loads a file while a job runs, changes it in the pool, and unloads it:
     efs FILE-OUTSIDE FILE-IN-THE-JOB BACKEND
     efs load|unload FILE-OUTSIDE says what that comes to.
   With no arguments it says how each wrong request is answered. */
#define _DEFAULT_SOURCE
#include <efs-api.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fails(const char *what, int code) {
    fprintf(stderr, "%s: %d: %s\n", what, code, efs_strerror(code));
    return 1;
}

static int ended(struct efs_iocb *block) {
    for (int looks = 0; looks < 6000; ++looks) {
        int code = efs_status(block);
        if (code != EFS_API_ETASKPENDING && code != EFS_API_ETASKINPROGRESS) return code;
        usleep(10000);
    }
    return EFS_API_ESNAFU;
}

static int wrong(void) {
    struct efs_iocb absent = EFS_IOCB_INIT("", "/nowhere/at/all", 0, 0);
    struct efs_iocb no_path = EFS_IOCB_INIT("", NULL, 0, 0);
    printf("%d %d %d %d %d %s\n", efs_load(NULL), efs_load(&no_path), efs_load(&absent),
           efs_unload(&absent), efs_status(&absent), efs_strerror(-500));
    return 0;
}

static int one(const char *verb, char *path) {
    struct efs_iocb block = EFS_IOCB_INIT(NULL, path, 0, 0);
    int code = strcmp(verb, "load") == 0 ? efs_load(&block) : efs_unload(&block);
    if (code == EFS_API_SUCCESS) code = ended(&block);
    printf("%d\n", code);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3) return one(argv[1], argv[2]);
    if (argc != 4) return wrong();
    struct efs_iocb block = EFS_IOCB_INIT(argv[3], argv[1], 0, 0);
    int code = efs_status(&block);
    if (code != EFS_API_ENOSUCHTASK) return fails("status of nothing", code);
    if ((code = efs_unload(&block)) != EFS_API_ENOSUCHPATH) return fails("early unload", code);
    if ((code = efs_load(&block)) != EFS_API_SUCCESS) return fails("load", code);
    if ((code = ended(&block)) != EFS_API_SUCCESS) return fails("loaded", code);
    FILE *file = fopen(argv[2], "r+");
    char line[16] = "";
    if (file == NULL || fgets(line, sizeof line, file) == NULL) return fails("read", 0);
    printf("%s", line);
    if (fseek(file, 0, SEEK_END) != 0 || fputs("more\n", file) < 0 || fclose(file) != 0)
        return fails("write", 0);
    if ((code = efs_unload(&block)) != EFS_API_SUCCESS) return fails("unload", code);
    if ((code = ended(&block)) != EFS_API_SUCCESS) return fails("unloaded", code);
    if (fopen(argv[2], "r") != NULL) return fails("it is still in the pool", 0);
    block.efs_size = 1;
    if ((code = efs_load(&block)) != EFS_API_EINVAL) return fails("a part", code);
    block.efs_size = 0;
    block.efs_backend = "none-such";
    if ((code = efs_load(&block)) != EFS_API_EINVAL) return fails("backend", code);
    return 0;
}
