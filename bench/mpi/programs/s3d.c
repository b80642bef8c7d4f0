/* s3d PATH NZ NY NX VARIABLES: writes, reads, reads otherwise, adds up; rank 0 prints seconds as JSON. */
#include "s3d.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void must(int is_so, const char *what)
{
    if (!is_so) {
        fprintf(stderr, "failed: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The block of a rank; `turned` cuts along the last dimensions first. */
static struct block block_of(int rank, int ranks, const size_t global[3], int turned)
{
    int parts[3] = {0, 0, 0};
    struct block block;
    size_t at = (size_t)rank;
    MPI_Dims_create(ranks, 3, parts);
    for (int dim = 2; dim >= 0; dim--) {
        size_t part = (size_t)parts[turned ? 2 - dim : dim];
        size_t index = at % part;
        at /= part;
        block.global[dim] = global[dim];
        block.offset[dim] = global[dim] * index / part;
        block.count[dim] = global[dim] * (index + 1) / part - block.offset[dim];
    }
    return block;
}

static size_t items(const struct block *block)
{
    return block->count[0] * block->count[1] * block->count[2];
}

static double value_at(const struct block *block, int variable, size_t z, size_t y, size_t x)
{
    size_t row = (block->offset[0] + z) * block->global[1] + block->offset[1] + y;
    return (double)(row * block->global[2] + block->offset[2] + x) + 0.125 * variable;
}

/* Fills in what a block should have, or checks that it has. */
static void each(const struct block *block, int variable, double *values, int check)
{
    for (size_t z = 0; z < block->count[0]; z++)
        for (size_t y = 0; y < block->count[1]; y++)
            for (size_t x = 0; x < block->count[2]; x++, values++) {
                double value = value_at(block, variable, z, y, x);
                if (!check)
                    *values = value;
                else if (*values != value)
                    must(0, "a value that was read is not the one that was written");
            }
}

static double **room_for(const struct block *block, int variables)
{
    double **values = malloc((size_t)variables * sizeof *values);
    for (int v = 0; v < variables; v++) {
        must(!posix_memalign((void **)&values[v], 4096, items(block) * sizeof(double)), "memory");
        memset(values[v], 0, items(block) * sizeof(double));
    }
    return values;
}

static double since(double start)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime() - start;
}

static double read_and_check(const struct run *run, const struct block *block)
{
    double **values = room_for(block, run->variables);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    read_all(run, block, values);
    double seconds = since(start);
    for (int v = 0; v < run->variables; v++) {
        each(block, v, values[v], 1);
        free(values[v]);
    }
    free(values);
    return seconds;
}

double add_up(const double *values, size_t count)
{
    double sums[8] = {0};
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (int lane = 0; lane < 8; lane++)
            sums[lane] += values[i + lane];
    for (; i < count; i++)
        sums[0] += values[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

__attribute__((weak)) double sum_all(const struct run *run, const struct block *block,
                                     double *const *room)
{
    double sum = 0;
    read_all(run, block, room);
    for (int v = 0; v < run->variables; v++)
        sum += add_up(room[v], items(block));
    return sum;
}

static double read_and_sum(const struct run *run, const struct block *block)
{
    double **room = room_for(block, run->variables);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    double sum = sum_all(run, block, room);
    double seconds = since(start), wanted = 0;
    for (int v = 0; v < run->variables; v++) {
        each(block, v, room[v], 0);
        wanted += add_up(room[v], items(block));
        free(room[v]);
    }
    free(room);
    must(fabs(sum - wanted) <= 1e-9 * fabs(wanted), "the sum is not that of what was written");
    return seconds;
}

int main(int argc, char **argv)
{
    struct run run = {0};
    size_t global[3];
    MPI_Init(&argc, &argv);
    must(argc == 6, "s3d PATH NZ NY NX VARIABLES");
    MPI_Comm_rank(MPI_COMM_WORLD, &run.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &run.ranks);
    run.path = argv[1];
    for (int dim = 0; dim < 3; dim++)
        global[dim] = strtoul(argv[2 + dim], NULL, 10);
    run.variables = atoi(argv[5]);
    struct block *all = malloc((size_t)run.ranks * sizeof *all);
    for (int rank = 0; rank < run.ranks; rank++)
        all[rank] = block_of(rank, run.ranks, global, 0);
    run.written = all;

    struct block own = all[run.rank], turned = block_of(run.rank, run.ranks, global, 1);
    double **values = room_for(&own, run.variables);
    for (int v = 0; v < run.variables; v++)
        each(&own, v, values[v], 0);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    write_all(&run, &own, values);
    double written = since(start);
    for (int v = 0; v < run.variables; v++)
        free(values[v]);
    free(values);
    double read = read_and_check(&run, &own);
    double reread = read_and_check(&run, &turned);
    double summed = read_and_sum(&run, &own);
    if (run.rank == 0) {
        printf("{\"write\": %.6f, \"read\": %.6f, ", written, read);
        printf("\"read otherwise\": %.6f, \"add up\": %.6f}\n", reread, summed);
    }
    free(all);
    MPI_Finalize();
    return 0;
}
