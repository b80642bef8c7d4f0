/* The same program behind every interface: a 3-D block of doubles per rank, some variables.
 *
 * As the I/O kernel of S3D, a combustion code: a rectangle of doubles, decomposed in blocks over all
 * ranks, is written variable by variable, then read back by the ranks that wrote it, then by a
 * decomposition along other dimensions; and its values are added up. An interface is two functions;
 * `s3d.c` does the rest.
 */
#ifndef S3D_H
#define S3D_H

#include <mpi.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a rank has of the rectangle. Dimension 0 is the slowest. */
struct block {
    size_t global[3];
    size_t offset[3];
    size_t count[3];
};

struct run {
    const char *path;
    int rank, ranks, variables;
    /* The blocks as they were written, of every rank: for those whose files are one a rank. */
    const struct block *written;
};

/* Makes the variables v0, v1, … and stores a block of each; on return they are in the store. */
void write_all(const struct run *run, const struct block *block, double *const *values);

/* Loads a block of each variable. */
void read_all(const struct run *run, const struct block *block, double *const *values);

/* The sum of a block of each variable. `s3d.c` has one that loads them into `room` and adds up; an
 * interface that can look at values where they lie has its own. */
double sum_all(const struct run *run, const struct block *block, double *const *room);

/* The sum of so many values. */
double add_up(const double *values, size_t count);

/* Ends every rank with this message, if it is not so. */
void must(int is_so, const char *what);

#ifdef __cplusplus
}
#endif

#endif
