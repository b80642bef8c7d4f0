/* ADIOS2, of the wheel, which is serial: each rank writes a file of its own, and who reads asks the
 * files that have a part of its block. */
#include "s3d.h"

#include <adios2_c.h>
#include <stdio.h>

static void ok(adios2_error status)
{
    must(status == adios2_error_none, "ADIOS2");
}

static adios2_engine *opened(adios2_adios *adios, const struct run *run, int rank, adios2_mode mode)
{
    char path[4096], name[16];
    snprintf(path, sizeof path, "%s.%d", run->path, rank);
    snprintf(name, sizeof name, "io%d", rank);
    adios2_io *io = adios2_declare_io(adios, name);
    must(io != NULL, "adios2_declare_io");
    ok(adios2_set_engine(io, "BP5"));
    adios2_engine *engine = adios2_open(io, path, mode);
    must(engine != NULL, "adios2_open");
    return engine;
}

void write_all(const struct run *run, const struct block *block, double *const *values)
{
    adios2_adios *adios = adios2_init_serial();
    adios2_engine *engine = opened(adios, run, run->rank, adios2_mode_write);
    char name[16];
    snprintf(name, sizeof name, "io%d", run->rank);
    adios2_io *io = adios2_at_io(adios, name);
    adios2_step_status status;
    ok(adios2_begin_step(engine, adios2_step_mode_append, -1.0F, &status));
    for (int v = 0; v < run->variables; v++) {
        snprintf(name, sizeof name, "v%d", v);
        adios2_variable *variable =
            adios2_define_variable(io, name, adios2_type_double, 3, block->global, block->offset,
                                   block->count, adios2_constant_dims_true);
        must(variable != NULL, "adios2_define_variable");
        ok(adios2_put(engine, variable, values[v], adios2_mode_deferred));
    }
    ok(adios2_end_step(engine));
    ok(adios2_close(engine));
    ok(adios2_finalize(adios));
}

/* What two blocks have in common; 0 if that is nothing. */
static int common(const struct block *a, const struct block *b, struct block *both)
{
    for (int dim = 0; dim < 3; dim++) {
        size_t start = a->offset[dim] > b->offset[dim] ? a->offset[dim] : b->offset[dim];
        size_t end_a = a->offset[dim] + a->count[dim], end_b = b->offset[dim] + b->count[dim];
        size_t end = end_a < end_b ? end_a : end_b;
        if (end <= start)
            return 0;
        both->offset[dim] = start;
        both->count[dim] = end - start;
    }
    return 1;
}

void read_all(const struct run *run, const struct block *block, double *const *values)
{
    adios2_adios *adios = adios2_init_serial();
    for (int rank = 0; rank < run->ranks; rank++) {
        struct block both;
        char name[16];
        adios2_step_status status;
        if (!common(block, &run->written[rank], &both))
            continue;
        adios2_engine *engine = opened(adios, run, rank, adios2_mode_read);
        snprintf(name, sizeof name, "io%d", rank);
        adios2_io *io = adios2_at_io(adios, name);
        ok(adios2_begin_step(engine, adios2_step_mode_read, -1.0F, &status));
        size_t within[3];
        for (int dim = 0; dim < 3; dim++)
            within[dim] = both.offset[dim] - block->offset[dim];
        for (int v = 0; v < run->variables; v++) {
            snprintf(name, sizeof name, "v%d", v);
            adios2_variable *variable = adios2_inquire_variable(io, name);
            must(variable != NULL, "adios2_inquire_variable");
            ok(adios2_set_selection(variable, 3, both.offset, both.count));
            ok(adios2_set_memory_selection(variable, 3, within, block->count));
            ok(adios2_get(engine, variable, values[v], adios2_mode_deferred));
        }
        ok(adios2_end_step(engine));
        ok(adios2_close(engine));
    }
    ok(adios2_finalize(adios));
}
