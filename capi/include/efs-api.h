// The C interface by which a job's program loads files of the parallel file system into the job's
// pool, and unloads them, while it runs. Its names, their order and their numbers are echofs's, so
// that programs written for echofs compile. Link with -lengram, or with -lefs-api, which is the
// same library.
//
// A request begins a task and returns; efs_status() asks how it stands. A task ends with the
// process that began it; the same request goes on with what it has done.
#ifndef EFS_API_H
#define EFS_API_H

#include <stddef.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

// What a request is about.
struct efs_iocb {
    // The id or type of a backend of the job's description; NULL or "": any.
    char *efs_backend;
    // A file or folder below the description's root-dir.
    char *efs_path;
    // 0: whole files are loaded.
    off_t efs_offset;
    // The file's size, or 0.
    size_t efs_size;
    // The task of the last request; the library's own.
    int efs_task;
};

#define EFS_IOCB_INIT(backend, path, offset, size) {(backend), (path), (offset), (size), 0}

// Begins to load a file or folder into the pool. What is there and unchanged is not copied.
int efs_load(struct efs_iocb *block);
// How the last request of this block stands: EFS_API_SUCCESS when it is done.
int efs_status(struct efs_iocb *block);
// Begins to bring a file or folder back to where it was loaded from. The copy is read again, and
// what is safe outside goes from the pool.
int efs_unload(struct efs_iocb *block);
// What a number says; the string stays, and is not to be changed.
char *efs_strerror(int code);

#define EFS_API_ERRMAX 512

#define EFS_API_SUCCESS 0
#define EFS_API_ESNAFU -1
#define EFS_API_EINVAL -2
#define EFS_API_EBADREQUEST -3
#define EFS_API_EBADRESPONSE -4
#define EFS_API_ENOMEM -5
#define EFS_API_ECONNFAILED -6
#define EFS_API_ERPCSENDFAILED -7
#define EFS_API_ERPCRECVFAILED -8
#define EFS_API_EPACKFAILED -9
#define EFS_API_EUNPACKFAILED -10
#define EFS_API_ETASKPENDING -11
#define EFS_API_ENOSUCHTASK -12
#define EFS_API_ETASKINPROGRESS -13
#define EFS_API_ENOSUCHPATH -14
#define EFS_API_EPATHEXISTS -15
#define EFS_API_UNKNOWN -(EFS_API_ERRMAX)

#ifdef __cplusplus
}
#endif

#endif
