// The whole C API, function by function: what it does, and what it refuses.
#include <engram.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks = 0;

// Ends the program unless a call came to a status, whose message has a text.
static void expect(engram_status got, engram_status wanted, const char *text, int line) {
    ++checks;
    if (got == wanted && (!text || strstr(engram_last_error(), text))) return;
    fprintf(stderr, "line %d: %s instead of %s: %s\n", line, engram_status_name(got),
            engram_status_name(wanted), engram_last_error());
    exit(1);
}
#define OK(call) expect(call, ENGRAM_STATUS_OK, NULL, __LINE__)
#define FAILS(call, kind, text) expect(call, ENGRAM_STATUS_##kind, text, __LINE__)
#define IS(truth)                                                                                 \
    do {                                                                                          \
        ++checks;                                                                                 \
        if (!(truth)) {                                                                           \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #truth);                           \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

struct particle {
    double x[3];
    float mass;
    int32_t id;
};

static const engram_dtype *f64(void) { return engram_dtype_scalar(ENGRAM_SCALAR_F64); }
static const engram_dtype *i64(void) { return engram_dtype_scalar(ENGRAM_SCALAR_I64); }

static engram_dtype *particle_dtype(void) {
    engram_dtype *dtype, *vector;
    const uint64_t three = 3;
    OK(engram_dtype_struct(sizeof(struct particle), &dtype));
    OK(engram_dtype_sub(f64(), 1, &three, &vector));
    OK(engram_dtype_add_field(dtype, "x", offsetof(struct particle, x), vector));
    OK(engram_dtype_add_field(dtype, "mass", offsetof(struct particle, mass),
                              engram_dtype_scalar(ENGRAM_SCALAR_F32)));
    OK(engram_dtype_add_field(dtype, "id", offsetof(struct particle, id),
                              engram_dtype_scalar(ENGRAM_SCALAR_I32)));
    FAILS(engram_dtype_add_field(dtype, "id", 0, f64()), ARGUMENT, "two fields named \"id\"");
    FAILS(engram_dtype_add_field(dtype, "far", sizeof(struct particle), f64()), ARGUMENT, "far");
    engram_dtype_free(vector);
    return dtype;
}

static void types(void) {
    const char *text[] = {"bool",   "int8",   "int16",  "int32",   "int64",   "uint8",     "uint16",
                          "uint32", "uint64", "float16", "float32", "float64", "complex64",
                          "complex128"};
    for (int scalar = 1; scalar <= ENGRAM_SCALAR_C128; ++scalar) {
        const engram_dtype *dtype = engram_dtype_scalar(scalar);
        char *got;
        OK(engram_dtype_text(dtype, &got));
        IS(strcmp(got, text[scalar - 1]) == 0);
        engram_string_free(got);
        IS((int)engram_dtype_which(dtype) == scalar);
        engram_dtype_free((engram_dtype *)dtype);
    }
    IS(engram_dtype_scalar(99) == NULL && engram_dtype_scalar(0) == NULL);
    engram_dtype *dtype = particle_dtype();
    IS(engram_dtype_itemsize(dtype) == sizeof(struct particle) && engram_dtype_nfields(dtype) == 3);
    const char *name;
    const engram_dtype *field;
    size_t offset;
    OK(engram_dtype_field(dtype, 1, &name, &offset, &field));
    IS(strcmp(name, "mass") == 0 && offset == offsetof(struct particle, mass));
    IS(engram_dtype_which(field) == ENGRAM_SCALAR_F32);
    FAILS(engram_dtype_field(dtype, 3, &name, NULL, NULL), ARGUMENT, "field 3");
    engram_dtype_free(dtype);
}

static int holds(const unsigned char *memory, size_t nbytes, unsigned char byte) {
    for (size_t at = 0; at < nbytes; ++at)
        if (memory[at] != byte) return 0;
    return 1;
}

static void scratch(engram_pool *pool, engram_group *root) {
    enum { SMALL = 1000, LARGE = 4 << 20, MANY = 100 };
    engram_space before, during;
    OK(engram_pool_space(pool, &before));
    engram_scratch *source;
    FAILS(engram_scratch_new(NULL, &source), ARGUMENT, "group is NULL");
    OK(engram_scratch_new(root, &source));
    unsigned char *one = engram_scratch_malloc(source, SMALL);
    IS(one != NULL && (uintptr_t)one % 64 == 0);
    memset(one, 1, SMALL);
    unsigned char *zeros = engram_scratch_calloc(source, LARGE / 8, 8);
    IS(zeros != NULL && holds(zeros, LARGE, 0));
    memset(zeros, 7, LARGE);
    OK(engram_pool_space(pool, &during));
    IS(during.pending >= before.pending + LARGE && during.used == before.used);
    // What both lengths have is the same, wherever the memory is then.
    unsigned char *longer = engram_scratch_realloc(source, one, LARGE);
    IS(longer != NULL && holds(longer, SMALL, 1));
    unsigned char *shorter = engram_scratch_realloc(source, longer, SMALL / 2);
    IS(shorter != NULL && holds(shorter, SMALL / 2, 1));
    IS(engram_scratch_realloc(source, shorter, 0) == NULL);
    FAILS(engram_scratch_release(source, shorter), ARGUMENT, "was freed before");
    OK(engram_scratch_release(source, zeros));
    OK(engram_scratch_release(source, NULL));
    void *aligned = NULL;
    for (size_t alignment = sizeof(void *); alignment <= 2 << 20; alignment *= 2) {
        OK(engram_scratch_posix_memalign(source, alignment, SMALL, &aligned));
        IS((uintptr_t)aligned % alignment == 0);
        memset(aligned, 2, SMALL);
        OK(engram_scratch_release(source, aligned));
    }
    FAILS(engram_scratch_posix_memalign(source, 48, SMALL, &aligned), ARGUMENT, "alignment 48");
    FAILS(engram_scratch_posix_memalign(source, 2, SMALL, &aligned), ARGUMENT, "alignment 2");
    // What fails changes nothing.
    unsigned char *kept = engram_scratch_realloc(source, NULL, SMALL);
    memset(kept, 3, SMALL);
    IS(engram_scratch_realloc(source, kept, (size_t)1 << 40) == NULL);
    IS(strstr(engram_last_error(), "pool") != NULL && holds(kept, SMALL, 3));
    IS(engram_scratch_calloc(source, SIZE_MAX / 2, 3) == NULL);
    IS(strstr(engram_last_error(), "too many") != NULL);
    IS(engram_scratch_malloc(source, SIZE_MAX) == NULL);
    IS(engram_scratch_malloc(NULL, 1) == NULL);
    IS(engram_scratch_malloc(source, 0) == NULL);
    for (int at = 0; at < MANY; ++at) IS(engram_scratch_malloc(source, LARGE / MANY) != NULL);
    engram_scratch_free(source);
    engram_scratch_free(NULL);
    OK(engram_pool_space(pool, &during));
    IS(during.used == before.used);
}

static void scopes(engram_group *root) {
    engram_group *own;
    engram_scope scope;
    FAILS(engram_group_create_scoped(root, "own", 7, NULL), ARGUMENT, "scope is 7");
    OK(engram_group_create_scoped(root, "own", ENGRAM_SCOPE_PRIVATE, NULL));
    FAILS(engram_group_create_scoped(root, "own", ENGRAM_SCOPE_PRIVATE, NULL), EXISTS, "own");
    OK(engram_group_open(root, "own", &own));
    OK(engram_scope_of(own, NULL, &scope));
    IS(scope == ENGRAM_SCOPE_PRIVATE);
    engram_options *options;
    OK(engram_options_new(&options));
    FAILS(engram_options_scope(options, ENGRAM_SCOPE_PUBLISHED), ARGUMENT, "published later");
    OK(engram_options_scope(options, ENGRAM_SCOPE_SHARED));
    OK(engram_blob_put(root, "seen", "x", 1, options, NULL));
    engram_options_free(options);
    OK(engram_scope_of(root, "seen", &scope));
    IS(scope == ENGRAM_SCOPE_SHARED);
    OK(engram_scope_unshare(root, "seen"));
    OK(engram_scope_share(root, "own"));
    OK(engram_scope_share(root, "seen"));
    OK(engram_scope_publish(root, "seen", true));
    OK(engram_scope_of(root, "seen", &scope));
    IS(scope == ENGRAM_SCOPE_PUBLISHED);
    OK(engram_scope_unpublish(root, "seen"));
    FAILS(engram_scope_share(root, "none"), NOT_FOUND, "none");
    engram_index_settings *settings;
    OK(engram_index_settings_new(&settings));
    OK(engram_index_settings_indexing(settings, ENGRAM_INDEXING_ASYNC));
    OK(engram_index_settings_dynamic(settings, false));
    OK(engram_index_settings_number(settings, "split_threshold", 4));
    FAILS(engram_index_settings_number(settings, "rows", 4), ARGUMENT, "segment_rows");
    OK(engram_index_settings_split_on(settings, "t", 0.5));
    OK(engram_index_settings_split_on_text(settings, "when", "2017-09-01"));
    OK(engram_group_set_index(own, settings));
    FAILS(engram_group_set_index(own, NULL), ARGUMENT, "settings is NULL");
    engram_index_settings_free(settings);
    engram_index_settings_free(NULL);
    OK(engram_delete(root, "own"));
    OK(engram_delete(root, "seen"));
    engram_group_free(own);
}

static void groups(engram_pool *pool, engram_group *root) {
    engram_group *group, *same;
    OK(engram_group_create(root, "run/step-1", &group));
    FAILS(engram_group_create(root, "run/step-1", NULL), EXISTS, "step-1");
    OK(engram_group_require(root, "run/step-1", &same));
    IS(engram_group_gid(group) == engram_group_gid(same));
    engram_group_free(same);
    char *path;
    OK(engram_group_path(group, &path));
    IS(strcmp(path, "run/step-1") == 0);
    engram_string_free(path);
    FAILS(engram_group_open(root, "nowhere", &same), NOT_FOUND, "nowhere");
    FAILS(engram_group_create(root, "a/../b", NULL), INVALID_NAME, "..");
    FAILS(engram_group_create(root, "\xff", NULL), ARGUMENT, "UTF-8");
    FAILS(engram_group_create(NULL, "x", NULL), ARGUMENT, "NULL");
    FAILS(engram_group_create(root, NULL, NULL), ARGUMENT, "path is NULL");
    FAILS(engram_group_path(group, NULL), ARGUMENT, "NULL");
    engram_member_kind kind;
    uint64_t id;
    OK(engram_lookup(root, "run/step-1", &id, &kind));
    IS(kind == ENGRAM_MEMBER_KIND_GROUP && id == engram_group_gid(group));
    OK(engram_lookup(root, "run/step-2", NULL, &kind));
    IS(kind == ENGRAM_MEMBER_KIND_NOTHING);
    OK(engram_move(root, "run/step-1", root, "run/first"));
    OK(engram_group_path(group, &path));
    IS(strcmp(path, "run/first") == 0);
    engram_string_free(path);
    OK(engram_namespace_create(pool, "other", 0700, 0));
    engram_group *other;
    OK(engram_namespace_open(pool, "other", &other));
    FAILS(engram_move(root, "run", other, "run"), ARGUMENT, "namespace");
    engram_list *names;
    OK(engram_namespace_list(pool, &names));
    IS(engram_list_len(names) == 2);
    const char *name;
    OK(engram_list_at(names, 1, &name, NULL, NULL));
    IS(strcmp(name, "other") == 0);
    FAILS(engram_list_at(names, 2, &name, NULL, NULL), ARGUMENT, "entry 2");
    engram_list_free(names);
    engram_group_free(other);
    OK(engram_namespace_remove(pool, "other"));
    engram_group_free(group);
}

static void arrays(engram_group *root) {
    const uint64_t shape[] = {30, 40}, wrong[] = {40, 30};
    double block[6 * 5], back[6 * 5] = {0};
    for (int i = 0; i < 30; ++i) block[i] = i;
    engram_object *array, *again;
    OK(engram_array_create(root, "grid", f64(), 2, shape, NULL, &array));
    IS(engram_object_kind(array) == ENGRAM_MEMBER_KIND_ARRAY && engram_object_ndim(array) == 2);
    IS(engram_object_nbytes(array) == 30 * 40 * 8 && engram_object_shape(array)[1] == 40);
    const uint64_t at[] = {10, 20}, counts[] = {6, 5}, far[] = {25, 20};
    OK(engram_object_store(array, 2, at, counts, block, sizeof block, ENGRAM_FLUSH_ONCE));
    OK(engram_object_load(array, 2, at, counts, back, sizeof back));
    IS(memcmp(block, back, sizeof back) == 0);
    OK(engram_object_store(array, 2, at, counts, block, sizeof block, ENGRAM_FLUSH_AS_WRITTEN));
    double all[30 * 40];
    OK(engram_object_read(array, all, sizeof all));
    double sum = 0;
    for (int i = 0; i < 30 * 40; ++i) sum += all[i];
    IS(sum == 29 * 30 / 2 && all[11 * 40 + 21] == block[5 + 1]);
    FAILS(engram_object_load(array, 2, far, counts, back, sizeof back), ARGUMENT, "[25, 20]");
    FAILS(engram_object_load(array, 1, at, counts, back, sizeof back), ARGUMENT, "2 dimensions");
    FAILS(engram_object_load(array, 2, at, counts, back, 8), ARGUMENT, "240");
    FAILS(engram_object_store(array, 2, at, counts, NULL, 240, 0), ARGUMENT, "NULL");
    FAILS(engram_object_store(array, 2, at, counts, block, 240, 7), ARGUMENT, "flush is 7");
    FAILS(engram_array_create(root, "grid", f64(), 2, shape, NULL, NULL), EXISTS, "grid");
    OK(engram_array_require(root, "grid", f64(), 2, shape, NULL, &again));
    IS(engram_object_oid(array) == engram_object_oid(again));
    engram_object_free(again);
    FAILS(engram_array_require(root, "grid", f64(), 2, wrong, NULL, NULL), EXISTS, "(30, 40)");
    FAILS(engram_array_require(root, "grid", engram_dtype_scalar(ENGRAM_SCALAR_I8), 2, shape, NULL,
                               NULL), EXISTS, "int8");
    const uint64_t huge[] = {UINT64_MAX, 2};
    FAILS(engram_array_create(root, "huge", f64(), 2, huge, NULL, NULL), ARGUMENT, "184467440737");
    const uint64_t much = 1ull << 40;
    FAILS(engram_array_create(root, "much", f64(), 1, &much, NULL, NULL), POOL_FULL, "");
    engram_view *view;
    OK(engram_object_view(array, true, &view));
    IS(engram_view_is_pool_memory(view) && engram_view_nbytes(view) == sizeof all);
    ((double *)engram_view_data(view))[0] = 42;
    OK(engram_object_flush(array));
    OK(engram_object_read(array, all, sizeof all));
    IS(all[0] == 42);
    OK(engram_delete(root, "grid"));
    IS(((double *)engram_view_data(view))[0] == 42);
    FAILS(engram_object_flush(array), BUSY, "");
    FAILS(engram_object_read(array, all, sizeof all), NOT_FOUND, "");
    engram_view_free(view);
    engram_object_free(array);
}

static void making(engram_group *root) {
    const uint64_t n = 5000;
    engram_options *options;
    const char *names[] = {"x"};
    OK(engram_options_new(&options));
    OK(engram_options_dims(options, 1, names));
    OK(engram_options_indexing(options, ENGRAM_INDEXING_SYNC));
    FAILS(engram_options_indexing(options, 9), ARGUMENT, "indexing is 9");
    engram_allocation *space;
    OK(engram_array_allocate(root, "run/made", f64(), 1, &n, options, &space));
    IS(engram_allocation_nbytes(space) == n * sizeof(double));
    for (uint64_t i = 0; i < n; ++i) ((double *)engram_allocation_data(space))[i] = (double)i;
    engram_member_kind kind;
    OK(engram_lookup(root, "run/made", NULL, &kind));
    IS(kind == ENGRAM_MEMBER_KIND_NOTHING);
    OK(engram_allocation_publish(space, NULL));
    engram_object *object;
    OK(engram_object_open(root, "run/made", &object));
    char *path;
    OK(engram_object_path(object, &path));
    IS(strcmp(path, "run/made") == 0 && strcmp(engram_object_name(object), "made") == 0);
    engram_string_free(path);
    engram_object_free(object);
    OK(engram_array_allocate(root, "run/never", f64(), 1, &n, NULL, &space));
    engram_allocation_abandon(space);
    OK(engram_lookup(root, "run/never", NULL, &kind));
    IS(kind == ENGRAM_MEMBER_KIND_NOTHING);
    const struct particle two[2] = {{{1, 2, 3}, 4, 5}, {{6, 7, 8}, 9, 10}};
    const uint64_t pair = 2;
    engram_dtype *dtype = particle_dtype();
    OK(engram_array_put(root, "particles", dtype, 1, &pair, two, sizeof two, NULL, &object));
    struct particle read[2];
    OK(engram_object_read(object, read, sizeof read));
    IS(read[1].x[2] == 8 && read[0].mass == 4 && read[1].id == 10);
    IS(engram_dtype_equal(engram_object_dtype(object), dtype));
    engram_dtype_free(dtype);
    engram_object_free(object);
    FAILS(engram_array_put(root, "short", f64(), 1, &n, two, 16, NULL, NULL), ARGUMENT, "16");
    OK(engram_blob_put(root, "log", "lines", 5, NULL, &object));
    char bytes[5];
    OK(engram_object_read(object, bytes, 5));
    IS(memcmp(bytes, "lines", 5) == 0 && engram_object_kind(object) == ENGRAM_MEMBER_KIND_BLOB);
    const uint64_t one = 1, three = 3;
    OK(engram_object_load(object, 1, &one, &three, bytes, 3));
    IS(memcmp(bytes, "ine", 3) == 0);
    engram_object_free(object);
    FAILS(engram_blob_put(root, "log", "", 0, NULL, NULL), EXISTS, "log");
    OK(engram_options_overwrite(options, true));
    OK(engram_blob_put(root, "log", NULL, 0, options, NULL));
    engram_options_free(options);
}

static void chunked(engram_group *root) {
    const uint64_t shape[] = {0, 500}, chunk[] = {16, 100}, row[] = {4, 500}, grown[] = {6, 700};
    const uint64_t zero[] = {0, 0};
    double data[4 * 500];
    for (int i = 0; i < 4 * 500; ++i) data[i] = i % 500;
    engram_options *options;
    engram_object *array, *same;
    engram_allocation *space;
    OK(engram_options_new(&options));
    FAILS(engram_options_chunks(options, 2, chunk, "gzip"), ARGUMENT, "\"gzip\"");
    OK(engram_options_chunks(options, 2, chunk, "shuffle+zstd:9"));
    FAILS(engram_array_allocate(root, "c", f64(), 2, row, options, &space), ARGUMENT, "chunked");
    OK(engram_array_create(root, "chunked", f64(), 2, shape, options, &array));
    FAILS(engram_array_create(root, "wrong", f64(), 1, row, options, NULL), ARGUMENT, "[16, 100]");
    engram_options_free(options);
    IS(engram_object_chunks(array)[1] == 100);
    IS(strcmp(engram_object_codec(array), "shuffle+zstd:9") == 0);
    OK(engram_object_open(root, "chunked", &same));
    OK(engram_array_append(array, 0, 2, row, data, sizeof data));
    IS(engram_object_shape(array)[0] == 4 && engram_object_shape(same)[0] == 0);
    OK(engram_object_refresh(same));
    IS(engram_object_shape(same)[0] == 4);
    FAILS(engram_array_append(array, 2, 2, row, data, sizeof data), ARGUMENT, "");
    double back[4 * 500];
    OK(engram_object_read(array, back, sizeof back));
    IS(memcmp(data, back, sizeof data) == 0);
    uint64_t taken;
    OK(engram_object_stored_nbytes(array, &taken));
    IS(taken < sizeof data / 4);
    OK(engram_array_resize(array, 2, grown));
    OK(engram_object_store(array, 2, zero, row, data, sizeof data, ENGRAM_FLUSH_ONCE));
    IS(engram_object_nbytes(array) == 6 * 700 * 8);
    engram_view *view;
    FAILS(engram_object_view(array, false, &view), ARGUMENT, "chunked");
    engram_object_free(same);
    engram_object_free(array);
    OK(engram_object_open(root, "run/made", &array));
    IS(engram_object_chunks(array) == NULL && engram_object_codec(array)[0] == 0);
    FAILS(engram_array_resize(array, 1, row), ARGUMENT, "made");
    engram_object_free(array);
}

static void attributes(engram_group *root) {
    const double t = -15.5, box[] = {1, 2, 3};
    const uint64_t three = 3;
    const char *levels[] = {"four", "", "five"};
    engram_attribute *attribute;
    OK(engram_attr_set(root, "run/made", "temperature", f64(), 0, NULL, &t, sizeof t));
    OK(engram_attr_set(root, "run/made", "box", f64(), 1, &three, box, sizeof box));
    OK(engram_attr_set_text(root, "run/made", "unit", "K and more", 1));
    OK(engram_attr_set_texts(root, "run/made", "levels", 3, levels));
    OK(engram_attr_set_text(root, NULL, "title", "all", 3));
    OK(engram_attr_get(root, "run/made", "temperature", &attribute));
    IS(engram_attribute_ndim(attribute) == 0 && *(double *)engram_attribute_data(attribute) == t);
    IS(engram_dtype_which(engram_attribute_dtype(attribute)) == ENGRAM_SCALAR_F64);
    char *text;
    FAILS(engram_attribute_text(attribute, 0, &text, NULL), ARGUMENT, "float64");
    engram_attribute_free(attribute);
    OK(engram_attr_get(root, "run/made", "levels", &attribute));
    size_t len;
    OK(engram_attribute_text(attribute, 2, &text, &len));
    IS(strcmp(text, "five") == 0 && len == 4 && engram_attribute_shape(attribute)[0] == 3);
    engram_string_free(text);
    FAILS(engram_attribute_text(attribute, 3, &text, NULL), ARGUMENT, "text 3");
    engram_attribute_free(attribute);
    OK(engram_attr_get(root, "run/made", "unit", &attribute));
    IS(engram_attribute_nbytes(attribute) == 1);
    engram_attribute_free(attribute);
    engram_list *keys;
    OK(engram_attr_list(root, "run/made", &keys));
    IS(engram_list_len(keys) == 4);
    engram_list_free(keys);
    OK(engram_attr_delete(root, "run/made", "box"));
    FAILS(engram_attr_get(root, "run/made", "box", &attribute), NOT_FOUND, "\"box\"");
    FAILS(engram_attr_get(root, "nowhere", "box", &attribute), NOT_FOUND, "nowhere");
    FAILS(engram_attr_set(root, "run/made", "box", f64(), 1, &three, box, 8), ARGUMENT, "24 bytes");
    engram_dtype *triple = NULL;
    OK(engram_dtype_sub(f64(), 1, &three, &triple));
    FAILS(engram_attr_set(root, "run/made", "triple", triple, 0, NULL, box, sizeof box), ARGUMENT,
          "cannot be set from C");
    engram_dtype_free(triple);
    /* Not one of so many lengths is read: there is one alone. */
    FAILS(engram_attr_set(root, "run/made", "box", f64(), 1000, &three, box, 8), ARGUMENT, "1000");
    engram_list *found;
    OK(engram_query(root, "temperature < -15 and unit = \"K\"", &found));
    IS(engram_list_len(found) == 1);
    const char *path;
    uint64_t oid;
    OK(engram_list_at(found, 0, &path, &oid, NULL));
    IS(strcmp(path, "run/made") == 0);
    engram_object *object;
    OK(engram_object_open_id(root, oid, &object));
    IS(engram_object_oid(object) == oid);
    engram_object_free(object);
    engram_list_free(found);
    uint64_t count;
    OK(engram_query_count(root, "exists(unit)", &count));
    IS(count == 1);
    FAILS(engram_query(root, "temperature <", &found), QUERY, "expected");
}

static void together(engram_pool *pool, engram_group *root) {
    engram_batch *batch;
    engram_member_kind kind;
    OK(engram_batch_begin(root, &batch));
    OK(engram_blob_put(root, "b/one", "1", 1, NULL, NULL));
    FAILS(engram_pool_close(pool), BUSY, "batch");
    OK(engram_batch_abort(batch));
    OK(engram_lookup(root, "b/one", NULL, &kind));
    IS(kind == ENGRAM_MEMBER_KIND_NOTHING);
    OK(engram_batch_begin(root, &batch));
    OK(engram_blob_put(root, "b/one", "1", 1, NULL, NULL));
    OK(engram_blob_put(root, "b/two", "2", 1, NULL, NULL));
    OK(engram_batch_commit(batch));
    engram_group *group;
    OK(engram_group_open(root, "b", &group));
    engram_list *members;
    OK(engram_group_list(group, &members));
    const char *name;
    OK(engram_list_at(members, 1, &name, NULL, &kind));
    IS(engram_list_len(members) == 2 && strcmp(name, "two") == 0);
    IS(kind == ENGRAM_MEMBER_KIND_BLOB);
    engram_list_free(members);
    engram_lock *lock;
    OK(engram_lock_take(group, NULL, true, 1.0, &lock));
    FAILS(engram_lock_take(group, NULL, true, 0.0 / 0.0, &lock), ARGUMENT, "NaN");
    engram_lock_free(lock);
    engram_group_free(group);
}

// A child puts something while this process waits for it.
static void watching(const char *path, engram_group *root) {
    engram_watch *watch;
    engram_list *found;
    OK(engram_watch_begin(root, "exists(watched)", false, &watch));
    OK(engram_watch_wait(watch, 0.0, &found));
    IS(engram_list_len(found) == 0);
    engram_list_free(found);
    const pid_t child = fork();
    if (child == 0) {
        engram_pool *own;
        engram_group *group;
        const int64_t one = 1;
        FAILS(engram_watch_wait(watch, 0.0, &found), ARGUMENT, "fork");
        OK(engram_pool_open(path, ENGRAM_OPEN_MODE_READ_WRITE, true, &own));
        OK(engram_namespace_open(own, NULL, &group));
        OK(engram_blob_put(group, "watched/blob", "1", 1, NULL, NULL));
        OK(engram_attr_set(group, "watched/blob", "watched", i64(), 0, NULL, &one, sizeof one));
        engram_group_free(group);
        OK(engram_pool_close(own));
        _exit(0);
    }
    const char *there;
    uint64_t oid;
    OK(engram_watch_wait(watch, -1.0, &found));
    IS(engram_list_len(found) == 1);
    OK(engram_list_at(found, 0, &there, &oid, NULL));
    IS(strcmp(there, "watched/blob") == 0 && oid != 0);
    engram_list_free(found);
    int status;
    IS(waitpid(child, &status, 0) == child && status == 0);
    OK(engram_watch_wait(watch, 0.01, &found));
    IS(engram_list_len(found) == 0);
    engram_list_free(found);
    FAILS(engram_watch_wait(watch, 0.0 / 0.0, &found), ARGUMENT, "NaN");
    OK(engram_watch_wake(watch));
    OK(engram_watch_wait(watch, -1.0, &found));
    IS(engram_list_len(found) == 0);
    engram_list_free(found);
    engram_watch_free(watch);
    engram_watch_free(NULL);
    // What was deleted since is nothing, and ends no wait.
    const int64_t two = 2;
    OK(engram_watch_begin(root, "exists(watched)", true, &watch));
    OK(engram_delete(root, "watched/blob"));
    OK(engram_blob_put(root, "watched/more", "1", 1, NULL, NULL));
    OK(engram_attr_set(root, "watched/more", "watched", i64(), 0, NULL, &two, sizeof two));
    OK(engram_watch_wait(watch, 0.0, &found));
    IS(engram_list_len(found) == 1);
    engram_list_free(found);
    OK(engram_delete(root, "watched/more"));
    engram_watch_free(watch);
    FAILS(engram_watch_begin(root, "watched >", false, &watch), QUERY, "expected");
    FAILS(engram_watch_begin(root, "a = 1 limit 1", false, &watch), ARGUMENT, "limit");
}

// A pool of two devices, with checksums, taken at once; arrays unset, and read-only ones.
static void chosen(const char *path, const char *device) {
    engram_pool_options *how;
    engram_options *options;
    engram_pool *pool;
    engram_group *root;
    const uint64_t n = 1000;
    IS(mkdir(device, 0700) == 0);
    OK(engram_pool_options_new(&how));
    OK(engram_pool_options_force(how, true));
    OK(engram_pool_options_survives(how, ENGRAM_SURVIVES_PROCESS));
    OK(engram_pool_options_mode(how, 0770));
    OK(engram_pool_options_checksums(how, true));
    OK(engram_pool_options_emulate_pmem(how, true));
    OK(engram_pool_options_emulate_pmem(how, false));
    OK(engram_pool_options_prefault(how, true));
    OK(engram_pool_options_add_device(how, device));
    OK(engram_pool_create(path, 8 << 20, how, &pool));
    FAILS(engram_pool_add_device(pool, device, true), EXISTS, device);
    IS(!engram_pool_survives_power(pool));
    engram_pool_options_free(how);
    OK(engram_namespace_open(pool, NULL, &root));
    OK(engram_options_new(&options));
    OK(engram_options_unset(options, true));
    OK(engram_array_create(root, "unset", f64(), 1, &n, options, NULL));
    OK(engram_options_read_only(options, true));
    OK(engram_blob_put(root, "fixed", "1", 1, options, NULL));
    engram_options_free(options);
    FAILS(engram_delete(root, "fixed"), READ_ONLY, "fixed");
    engram_group_free(root);
    OK(engram_pool_close(pool));
    OK(engram_pool_destroy(path, false));
    IS(rmdir(device) == 0);
    FAILS(engram_pool_destroy(path, false), NOT_FOUND, path);
}

static void *fail_elsewhere(void *root) {
    engram_object *object;
    FAILS(engram_object_open(root, "elsewhere", &object), NOT_FOUND, "elsewhere");
    return NULL;
}

// Each thread has its own last error; a forked child uses the handles that it has inherited.
static void threads_and_forks(engram_group *root) {
    engram_object *object;
    pthread_t thread;
    FAILS(engram_object_open(root, "here", &object), NOT_FOUND, "here");
    IS(pthread_create(&thread, NULL, fail_elsewhere, root) == 0);
    IS(pthread_join(thread, NULL) == 0);
    IS(strstr(engram_last_error(), "\"here\""));
    OK(engram_object_open(root, "particles", &object));
    struct particle two[2];
    const pid_t child = fork();
    if (child == 0) {
        OK(engram_object_read(object, two, sizeof two));
        OK(engram_blob_put(root, "by-child", "1", 1, NULL, NULL));
        _exit(0);
    }
    int status = 1;
    IS(waitpid(child, &status, 0) == child && status == 0);
    engram_member_kind kind;
    OK(engram_lookup(root, "by-child", NULL, &kind));
    IS(kind == ENGRAM_MEMBER_KIND_BLOB);
    OK(engram_object_read(object, two, sizeof two));
    engram_object_free(object);
}

int main(int argc, char **argv) {
    (void)argc;
    char second[1000], device[1000];
    snprintf(second, sizeof second, "%s-chosen", argv[1]);
    snprintf(device, sizeof device, "%s-device", argv[1]);
    chosen(second, device);
    engram_pool *pool, *other;
    engram_group *root;
    types();
    FAILS(engram_pool_open(argv[1], ENGRAM_OPEN_MODE_READ_WRITE, true, &pool), NOT_FOUND, argv[1]);
    IS(engram_status_errno(ENGRAM_STATUS_NOT_FOUND) == ENOENT && engram_status_errno(0) == 0);
    engram_pool_options *options;
    OK(engram_pool_options_new(&options));
    OK(engram_pool_options_force(options, true));
    FAILS(engram_pool_options_survives(options, 5), ARGUMENT, "survives is 5");
    OK(engram_pool_create(argv[1], 64 << 20, options, &pool));
    FAILS(engram_pool_create(argv[1], 64 << 20, options, &other), EXISTS, argv[1]);
    engram_pool_options_free(options);
    IS(strcmp(engram_pool_path(pool), argv[1]) == 0 && strlen(engram_pool_uuid(pool)) == 32);
    OK(engram_namespace_open(pool, NULL, &root));
    groups(pool, root);
    scratch(pool, root);
    scopes(root);
    arrays(root);
    making(root);
    chunked(root);
    attributes(root);
    together(pool, root);
    watching(argv[1], root);
    threads_and_forks(root);
    engram_space space;
    OK(engram_pool_space(pool, &space));
    IS(space.size == 64 << 20 && space.used > 0);
    OK(engram_pool_resize(pool, 128 << 20));
    OK(engram_pool_open(argv[1], ENGRAM_OPEN_MODE_READ, true, &other));
    engram_group *reader;
    OK(engram_namespace_open(other, NULL, &reader));
    FAILS(engram_group_create(reader, "no", NULL), READ_ONLY, "");
    engram_group_free(reader);
    OK(engram_pool_close(other));
    OK(engram_pool_close(pool));
    engram_object *object;
    FAILS(engram_object_open(root, "run/made", &object), ARGUMENT, "closed");
    engram_group_free(root);
    engram_list *problems;
    OK(engram_pool_verify(argv[1], &problems));
    IS(engram_list_len(problems) == 0);
    engram_list_free(problems);
    // NULL is nothing, wherever something is freed.
    OK(engram_pool_close(NULL));
    engram_group_free(NULL);
    engram_object_free(NULL);
    engram_view_free(NULL);
    engram_dtype_free(NULL);
    engram_string_free(NULL);
    printf("%d checks, version %s\n", checks, engram_version());
    return 0;
}
