// Engram: arrays in memory that every process on the node maps, and that outlive their program.
//
// Generated of capi/src by cbindgen: do not edit. The contract of all functions:
//
// - A function that can fail returns a status, 0 where all is well, and sets its outputs, which
//   come last, only then; engram_last_error() says what was wrong, in the same thread.
// - A handle that a function gives is freed by its own function, whose name ends with _free, or by
//   the one that ends what it stands for. Strings and arrays that a handle gives are the handle's;
//   those that are "to be freed" go to engram_string_free().
// - Strings are UTF-8 and end with NUL; paths of the filesystem are any bytes.
// - NULL stands for "none" where a function says so, and is refused elsewhere.
// - Handles may be used by any thread; a handle that is freed, or options and structures that are
//   changed, by one at a time. Batches and locks belong to their thread. In a forked child, pools,
//   groups, objects and views stay good.



#ifndef ENGRAM_H
#define ENGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What a call came to: 0, or the number of the kind of its error, by what the caller can do.
//
// The numbers are those of the engine's one table, which only ever grows at its end.
typedef enum {
  // It was done.
  ENGRAM_STATUS_OK = 0,
  // No such pool, namespace, group, object or attribute.
  ENGRAM_STATUS_NOT_FOUND = 1,
  // The name is taken.
  ENGRAM_STATUS_EXISTS = 2,
  // The pool, its device or the memory limit has no room.
  ENGRAM_STATUS_POOL_FULL = 3,
  // The kernel refuses this user.
  ENGRAM_STATUS_ACCESS = 4,
  // A write through a read-only handle.
  ENGRAM_STATUS_READ_ONLY = 5,
  // An ill-formed query.
  ENGRAM_STATUS_QUERY = 6,
  // What is on media is not what was written.
  ENGRAM_STATUS_CORRUPT = 7,
  // Somebody else holds or changed it.
  ENGRAM_STATUS_BUSY = 8,
  // Not a pool, half-created, newer.
  ENGRAM_STATUS_FORMAT = 9,
  // A name that cannot be a name.
  ENGRAM_STATUS_INVALID_NAME = 10,
  // A dtype, shape, value, pointer or handle that does not fit.
  ENGRAM_STATUS_ARGUMENT = 11,
  // A filesystem or environment that cannot carry a pool.
  ENGRAM_STATUS_UNSUPPORTED = 12,
  // The operating system failed in a way that has no kind of its own; or a defect of the engine.
  ENGRAM_STATUS_OS = 13,
  // A commit whose last sync failed: what it changed may be durable, or not. Close the pool, run
  // `engram verify`, look whether the change is there, and repeat it if it is not.
  ENGRAM_STATUS_COMMIT_UNCERTAIN = 14,
  // The pool's files were removed under this process: what it holds goes with the last one that
  // maps it.
  ENGRAM_STATUS_POOL_GONE = 15,
  // Nobody but its owner may enter the namespace, so nobody would read what is published there.
  ENGRAM_STATUS_CLOSED_NAMESPACE = 16,
  // A loss of power may have damaged the pool, and nobody has verified it since.
  ENGRAM_STATUS_UNVERIFIED = 17,
} engram_status;

// The types of numbers, native byte order.
typedef enum {
  // None of these: a structure, strings, dates, another byte order.
  ENGRAM_SCALAR_OTHER = 0,
  // `bool`
  ENGRAM_SCALAR_BOOL = 1,
  // `int8_t`
  ENGRAM_SCALAR_I8 = 2,
  // `int16_t`
  ENGRAM_SCALAR_I16 = 3,
  // `int32_t`
  ENGRAM_SCALAR_I32 = 4,
  // `int64_t`
  ENGRAM_SCALAR_I64 = 5,
  // `uint8_t`
  ENGRAM_SCALAR_U8 = 6,
  // `uint16_t`
  ENGRAM_SCALAR_U16 = 7,
  // `uint32_t`
  ENGRAM_SCALAR_U32 = 8,
  // `uint64_t`
  ENGRAM_SCALAR_U64 = 9,
  // Half precision, two bytes.
  ENGRAM_SCALAR_F16 = 10,
  // `float`
  ENGRAM_SCALAR_F32 = 11,
  // `double`
  ENGRAM_SCALAR_F64 = 12,
  // `float _Complex`
  ENGRAM_SCALAR_C64 = 13,
  // `double _Complex`
  ENGRAM_SCALAR_C128 = 14,
} engram_scalar;

// What a member of a group is.
typedef enum {
  // Nothing: there is no such member.
  ENGRAM_MEMBER_KIND_NOTHING = 0,
  // A group.
  ENGRAM_MEMBER_KIND_GROUP = 1,
  // An array of items of a fixed size.
  ENGRAM_MEMBER_KIND_ARRAY = 2,
  // Bytes.
  ENGRAM_MEMBER_KIND_BLOB = 3,
  // An array of strings of variable length.
  ENGRAM_MEMBER_KIND_STRINGS = 4,
  // An array or a blob: which of them was not looked at.
  ENGRAM_MEMBER_KIND_OBJECT = 5,
} engram_member_kind;

// What a pool survives.
typedef enum {
  // What its filesystem does: tmpfs the process's death, others the loss of power.
  ENGRAM_SURVIVES_AUTO = 0,
  // The death of any process.
  ENGRAM_SURVIVES_PROCESS = 1,
  // The loss of power, too.
  ENGRAM_SURVIVES_SYSTEM = 2,
} engram_survives;

// When an object's attributes come into the index.
typedef enum {
  // As its group says.
  ENGRAM_INDEXING_INHERITED = 0,
  // In the commit that makes it.
  ENGRAM_INDEXING_SYNC = 1,
  // Soon after.
  ENGRAM_INDEXING_ASYNC = 2,
  // Never: queries see what is built in alone.
  ENGRAM_INDEXING_NEVER = 3,
} engram_indexing;

// What may be done with a pool.
typedef enum {
  // Reading.
  ENGRAM_OPEN_MODE_READ = 0,
  // Reading and writing.
  ENGRAM_OPEN_MODE_READ_WRITE = 1,
} engram_open_mode;

// When what is stored is made durable, where the pool promises that it survives a loss of power.
typedef enum {
  // Once, after all of it has been copied.
  ENGRAM_FLUSH_ONCE = 0,
  // Piece by piece, as it is copied.
  ENGRAM_FLUSH_AS_WRITTEN = 1,
} engram_flush;

// Space of the pool that is being filled, and becomes an array, or is given back.
typedef struct engram_allocation engram_allocation;

// An attribute's value, as it was when it was asked for.
typedef struct engram_attribute engram_attribute;

// A batch that runs in the thread that began it.
typedef struct engram_batch engram_batch;

// The type of the items of an array or an attribute.
typedef struct engram_dtype engram_dtype;

// A group.
typedef struct engram_group engram_group;

// Names or paths, each with an id where it has one.
typedef struct engram_list engram_list;

// A lock that is held.
typedef struct engram_lock engram_lock;

// An array or a blob. Its type and shape are those that it had when the handle was made, or
// refreshed; it never gets another type.
typedef struct engram_object engram_object;

// How an array or a blob is made.
typedef struct engram_options engram_options;

// An open pool.
typedef struct engram_pool engram_pool;

// How a pool is made.
typedef struct engram_pool_options engram_pool_options;

// A value as memory. It stays what it is until the view is freed, whatever becomes of the object,
// here or in another process.
typedef struct engram_view engram_view;

// A watch of what comes below a group.
typedef struct engram_watch engram_watch;

// Where the space of a pool's first namespace is, in bytes.
typedef struct {
  // The bound of what values take.
  uint64_t size;
  // What values take.
  uint64_t used;
  // What is taken from the devices so far.
  uint64_t arena;
  // What is free of that.
  uint64_t free;
  // What is reserved, or freed and still in somebody's view.
  uint64_t pending;
  // What the catalog takes, beside that.
  uint64_t catalog;
} engram_space;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Sets an attribute: one number or structure (`ndim` 0), or an array of them in C order.
engram_status engram_attr_set(const engram_group *group,
                              const char *path,
                              const char *key,
                              const engram_dtype *dtype,
                              size_t ndim,
                              const uint64_t *shape,
                              const void *data,
                              size_t nbytes);

// Sets an attribute to a string of so many bytes of UTF-8, which may hold anything but NUL at its
// end: the length counts.
engram_status engram_attr_set_text(const engram_group *group,
                                   const char *path,
                                   const char *key,
                                   const char *text,
                                   size_t len);

// Sets an attribute to an array of strings, each of which ends with NUL.
engram_status engram_attr_set_texts(const engram_group *group,
                                    const char *path,
                                    const char *key,
                                    size_t count,
                                    const char *const *texts);

// Gives an attribute's value. There is none: `ENGRAM_STATUS_NOT_FOUND`.
engram_status engram_attr_get(const engram_group *group,
                              const char *path,
                              const char *key,
                              engram_attribute **attribute);

// Removes an attribute.
engram_status engram_attr_delete(const engram_group *group,
                                 const char *path,
                                 const char *key);

// Lists the keys of a member's attributes, in byte order.
engram_status engram_attr_list(const engram_group *group,
                               const char *path,
                               engram_list **keys);

// The type of an attribute's items, which is the attribute's; NULL of NULL.
const engram_dtype *engram_attribute_dtype(const engram_attribute *attribute);

// How many dimensions it has: 0 of a single value.
size_t engram_attribute_ndim(const engram_attribute *attribute);

// Its shape, which is the attribute's.
const uint64_t *engram_attribute_shape(const engram_attribute *attribute);

// Its bytes, which are the attribute's. Of a single string these are its characters, without NUL.
const void *engram_attribute_data(const engram_attribute *attribute);

// How many bytes these are.
size_t engram_attribute_nbytes(const engram_attribute *attribute);

// Gives a string of an attribute of strings: item `at` of an array's, or the single one, at 0. The
// string is to be freed; the length may be NULL.
engram_status engram_attribute_text(const engram_attribute *attribute,
                                    size_t at,
                                    char **text,
                                    size_t *len);

// Frees an attribute's value. NULL is nothing.
void engram_attribute_free(engram_attribute *attribute);

// Begins a batch on a group's namespace, in this thread; within another, joins that. What the
// thread does there until the end becomes visible at once, or never.
engram_status engram_batch_begin(const engram_group *group,
                                 engram_batch **batch);

// Ends a batch, and commits if it is the outermost. The handle is freed whatever comes of it; on
// an error nothing of the batch is kept.
engram_status engram_batch_commit(engram_batch *batch);

// Ends a batch, and the one that it has joined, with nothing kept. The handle is freed. NULL is
// nothing.
engram_status engram_batch_abort(engram_batch *batch);

// The type of a number: one of the library's own, never to be freed. NULL if there is none such.
const engram_dtype *engram_dtype_scalar(int scalar);

// Begins a structure of so many bytes, padding included (`sizeof`); fields are added to it.
engram_status engram_dtype_struct(size_t size,
                                  engram_dtype **dtype);

// Adds a field to a structure, at an offset (`offsetof`).
engram_status engram_dtype_add_field(engram_dtype *dtype,
                                     const char *name,
                                     size_t offset,
                                     const engram_dtype *field);

// The type of a field that is itself an array: `double v[3]` in a structure.
engram_status engram_dtype_sub(const engram_dtype *base,
                               size_t ndim,
                               const uint64_t *shape,
                               engram_dtype **dtype);

// Which number it is; `ENGRAM_SCALAR_OTHER` for what is none, and for NULL.
engram_scalar engram_dtype_which(const engram_dtype *dtype);

// The bytes of one item; 0 of strings of variable length, and of NULL.
size_t engram_dtype_itemsize(const engram_dtype *dtype);

// How many fields it has; 0 of what is no structure, and of NULL.
size_t engram_dtype_nfields(const engram_dtype *dtype);

// Gives a field's name, offset and type, which are the dtype's. Each output may be NULL.
engram_status engram_dtype_field(const engram_dtype *dtype,
                                 size_t at,
                                 const char **name,
                                 size_t *offset,
                                 const engram_dtype **field);

// Whether two types have the same items, byte by byte and name by name.
bool engram_dtype_equal(const engram_dtype *one, const engram_dtype *other);

// Gives the type as numpy writes it, such as "float64", in a string to be freed.
engram_status engram_dtype_text(const engram_dtype *dtype, char **text);

// Frees a type that was made, by `engram_dtype_struct` or `engram_dtype_sub`. NULL, and the
// library's own, are nothing.
void engram_dtype_free(engram_dtype *dtype);

// What the last failed call of this thread said: what was wrong, with the value, and what to do.
// It stays until this thread's next call that fails; empty where none has.
const char *engram_last_error(void);

// The name of a status, which is that of the Python exception; "OK" for 0.
const char *engram_status_name(int status);

// The nearest errno of a status: `ENOENT` where nothing is; 0 of 0.
int engram_status_errno(int status);

// The library's version, such as "0.1.0".
const char *engram_version(void);

// Frees a string that a function has given to be freed. NULL is nothing.
void engram_string_free(char *string);

// Makes a group, with those above it that are missing. `new` may be NULL.
engram_status engram_group_create(const engram_group *group,
                                  const char *path,
                                  engram_group **new_);

// Gives a group, made if it is not there. `found` may be NULL.
engram_status engram_group_require(const engram_group *group,
                                   const char *path,
                                   engram_group **found);

// Gives a group that is there.
engram_status engram_group_open(const engram_group *group,
                                const char *path,
                                engram_group **found);

// The group's id; 0 of NULL.
uint64_t engram_group_gid(const engram_group *group);

// Gives a group's path from the root of its namespace, in a string to be freed; "" of the root.
engram_status engram_group_path(const engram_group *group,
                                char **path);

// Lists a group's members in byte order of their names, each with its id and what it is.
engram_status engram_group_list(const engram_group *group, engram_list **members);

// Tells what is at a path: `ENGRAM_MEMBER_KIND_NOTHING` where nothing is. The id may be NULL.
engram_status engram_lookup(const engram_group *group,
                            const char *path,
                            uint64_t *id,
                            engram_member_kind *kind);

// Deletes a member; a group with all that is in it. Views of values stay good.
engram_status engram_delete(const engram_group *group, const char *path);

// Gives a member another name, in the same group or in another of the same namespace.
engram_status engram_move(const engram_group *group,
                          const char *old_path,
                          const engram_group *new_group,
                          const char *new_path);

// Frees a group's handle. NULL is nothing.
void engram_group_free(engram_group *group);

// How many entries a list has; 0 of NULL.
size_t engram_list_len(const engram_list *list);

// Gives an entry's name or path; its id, or 0; and what it is. The text is the list's. Each output
// may be NULL.
engram_status engram_list_at(const engram_list *list,
                             size_t at,
                             const char **text,
                             uint64_t *id,
                             engram_member_kind *kind);

// Frees a list, with its texts. NULL is nothing.
void engram_list_free(engram_list *list);

// Locks a member, or the group itself at NULL or "": with `exclusive` from all others who lock it,
// else from those who lock it exclusively. It keeps out nobody who does not ask. Waits for so many
// seconds, then that is `ENGRAM_STATUS_BUSY`; for ever, if the number is negative. It belongs to
// this thread, and ends with the process, however that ends.
engram_status engram_lock_take(const engram_group *group,
                               const char *path,
                               bool exclusive,
                               double seconds,
                               engram_lock **lock);

// Lets go of a lock. NULL is nothing.
void engram_lock_free(engram_lock *lock);

// Opens a namespace: its root group. NULL is the one that every pool starts with.
engram_status engram_namespace_open(const engram_pool *pool,
                                    const char *name,
                                    engram_group **root);

// Makes a namespace with a POSIX mode such as 0770, and at most `size` bytes of values; 0 for as
// many as the pool's first one.
engram_status engram_namespace_create(const engram_pool *pool,
                                      const char *name,
                                      uint32_t mode,
                                      uint64_t size);

// Lists the namespaces of a pool.
engram_status engram_namespace_list(const engram_pool *pool, engram_list **names);

// Removes a namespace with all that is in it. While others use it, that is `ENGRAM_STATUS_BUSY`.
engram_status engram_namespace_remove(const engram_pool *pool,
                                      const char *name);

// Makes an array of zeros; or unset, if `options` say so, which may be NULL. `object` may be NULL.
engram_status engram_array_create(const engram_group *group,
                                  const char *path,
                                  const engram_dtype *dtype,
                                  size_t ndim,
                                  const uint64_t *shape,
                                  const engram_options *options,
                                  engram_object **object);

// Gives the array at a path, made as by `engram_array_create` if nothing is there. Many processes
// may do so at once. What is there and is not of this type and shape is `ENGRAM_STATUS_EXISTS`.
engram_status engram_array_require(const engram_group *group,
                                   const char *path,
                                   const engram_dtype *dtype,
                                   size_t ndim,
                                   const uint64_t *shape,
                                   const engram_options *options,
                                   engram_object **object);

// Stores a whole array of `nbytes` bytes in C order: visible to all when this returns, and not
// before. `options` and `object` may be NULL.
engram_status engram_array_put(const engram_group *group,
                               const char *path,
                               const engram_dtype *dtype,
                               size_t ndim,
                               const uint64_t *shape,
                               const void *data,
                               size_t nbytes,
                               const engram_options *options,
                               engram_object **object);

// Stores a blob: visible to all when this returns. `options` and `object` may be NULL.
engram_status engram_blob_put(const engram_group *group,
                              const char *path,
                              const void *data,
                              size_t nbytes,
                              const engram_options *options,
                              engram_object **object);

// Gives a handle of the array or blob at a path.
engram_status engram_object_open(const engram_group *group,
                                 const char *path,
                                 engram_object **object);

// Gives a handle of the array or blob with an id, such as a query finds.
engram_status engram_object_open_id(const engram_group *group,
                                    uint64_t oid,
                                    engram_object **object);

// The object's id: unique in the pool, and never used again. 0 of NULL.
uint64_t engram_object_oid(const engram_object *object);

// What it is: an array, a blob or strings.
engram_member_kind engram_object_kind(const engram_object *object);

// The type of its items, which is the object's handle's; NULL of NULL.
const engram_dtype *engram_object_dtype(const engram_object *object);

// How many dimensions it has; 1 of a blob.
size_t engram_object_ndim(const engram_object *object);

// Its shape, which is the handle's.
const uint64_t *engram_object_shape(const engram_object *object);

// The bytes of its value.
uint64_t engram_object_nbytes(const engram_object *object);

// The shape of a chunk, of as many dimensions as the array has; NULL of what lies in one piece. It
// is the handle's.
const uint64_t *engram_object_chunks(const engram_object *object);

// How each chunk is encoded, such as "shuffle+lz4"; "" of what lies in one piece. The string is
// the handle's.
const char *engram_object_codec(const engram_object *object);

// Gives a chunked array another shape of as many dimensions: what it grows by is zeros, what is
// cut off is gone. The handle has the new shape then.
engram_status engram_array_resize(engram_object *object,
                                  size_t ndim,
                                  const uint64_t *shape);

// Appends data, of so many items in each dimension, to a chunked array along one of them. Who
// appends at the same time comes before or after. The handle has the new shape then.
engram_status engram_array_append(engram_object *object,
                                  size_t axis,
                                  size_t ndim,
                                  const uint64_t *counts,
                                  const void *data,
                                  size_t nbytes);

// Looks again what is known of an object: the shape of a chunked array may have been changed by
// another.
engram_status engram_object_refresh(engram_object *object);

// Gives the bytes that a value takes in the pool: of a chunked array, of what is encoded.
engram_status engram_object_stored_nbytes(const engram_object *object, uint64_t *nbytes);

// Its name when the handle was made. The string is the handle's.
const char *engram_object_name(const engram_object *object);

// Gives its path from the root of its namespace, in a string to be freed.
engram_status engram_object_path(const engram_object *object, char **path);

// Frees a handle. NULL is nothing.
void engram_object_free(engram_object *object);

// Gives new options for `engram_pool_create`.
engram_status engram_pool_options_new(engram_pool_options **options);

// What the pool must survive: one of `ENGRAM_SURVIVES_...`.
engram_status engram_pool_options_survives(engram_pool_options *options, int survives);

// One device more, beside the pool's own path: a folder of another filesystem, or a devdax node.
engram_status engram_pool_options_add_device(engram_pool_options *options,
                                             const char *path);

// The POSIX mode of the pool's first namespace, such as 0770; its owner's alone, where unset.
engram_status engram_pool_options_mode(engram_pool_options *options,
                                       uint32_t mode);

// Whether all space is taken and mapped now.
engram_status engram_pool_options_prefault(engram_pool_options *options, bool on);

// Whether each value has a checksum, which `engram_pool_verify` compares.
engram_status engram_pool_options_checksums(engram_pool_options *options, bool on);

// Whether copies go at the pace of persistent memory, for evaluation alone.
engram_status engram_pool_options_emulate_pmem(engram_pool_options *options, bool on);

// Whether filesystems will do that are not on the list; network ones never do.
engram_status engram_pool_options_force(engram_pool_options *options, bool on);

// Frees options. NULL is nothing.
void engram_pool_options_free(engram_pool_options *options);

// Gives new options for what makes arrays and blobs.
engram_status engram_options_new(engram_options **options);

// Whether what has the name is replaced, in the same commit.
engram_status engram_options_overwrite(engram_options *options, bool on);

// Whether a new array holds anything at first, in place of zeros: whatever was there of the same
// user's pool. It is quicker, for who is going to write all of it.
engram_status engram_options_unset(engram_options *options,
                                   bool on);

// Whether it is read-only from the beginning: a hint, kept against mistakes.
engram_status engram_options_read_only(engram_options *options, bool on);

// When its attributes come into the index: one of `ENGRAM_INDEXING_...`.
engram_status engram_options_indexing(engram_options *options, int indexing);

// Keeps an array in chunks of this shape, each encoded for itself, so that it can grow and shrink;
// with `ndim` 0, of a shape that serves well. The codec is "none", "lz4", "zstd" or "zstd:9", with
// "shuffle+" before the last three if that helps; NULL is "none". Such an array has no view.
engram_status engram_options_chunks(engram_options *options,
                                    size_t ndim,
                                    const uint64_t *chunks,
                                    const char *codec);

// The names of an array's dimensions.
engram_status engram_options_dims(engram_options *options,
                                  size_t ndim,
                                  const char *const *names);

// Frees options. NULL is nothing.
void engram_options_free(engram_options *options);

// The engine of this process, for `engram_cluster_open`: a process has one.
const void *engram_engine(void);

// Gives the type as a cluster has it, such as "<f8", in a string to be freed.
engram_status engram_dtype_spec(const engram_dtype *dtype, char **spec);

// Makes a pool of at most `size` bytes of values at a path that does not exist or is an empty
// folder, and opens it for writing. `options` may be NULL. On an error nothing is left behind.
engram_status engram_pool_create(const char *path,
                                 uint64_t size,
                                 const engram_pool_options *options,
                                 engram_pool **pool);

// Opens a pool: `mode` is `ENGRAM_OPEN_MODE_READ` or `ENGRAM_OPEN_MODE_READ_WRITE`; `force`, where
// its filesystem is not on the list.
engram_status engram_pool_open(const char *path,
                               int mode,
                               bool force,
                               engram_pool **pool);

// Closes a pool and frees it. Groups and objects of it answer `ENGRAM_STATUS_ARGUMENT` from then
// on, and are freed by their owner as ever; views stay good. While this thread runs a batch on it,
// that is `ENGRAM_STATUS_BUSY`, and the pool stays open. Where its files were removed meanwhile,
// that is `ENGRAM_STATUS_POOL_GONE`; it is closed and freed. NULL is nothing.
engram_status engram_pool_close(engram_pool *pool);

// Removes a pool with all that is in it. While others have it open, that is `ENGRAM_STATUS_BUSY`.
// With `force` what is damaged, or is no pool any more, is removed as far as it can be told.
engram_status engram_pool_destroy(const char *path,
                                  bool force);

// The pool's folder. The string is the pool's.
const char *engram_pool_path(const engram_pool *pool);

// The pool's identity, 32 hexadecimal digits. The string is the pool's.
const char *engram_pool_uuid(const engram_pool *pool);

// Whether each commit of the pool survives the loss of power.
bool engram_pool_survives_power(const engram_pool *pool);

// Tells where the space of the pool's first namespace is.
engram_status engram_pool_space(const engram_pool *pool, engram_space *space);

// Sets the bound of what values may take in the pool's first namespace.
engram_status engram_pool_resize(const engram_pool *pool, uint64_t size);

// Adds a device to a pool; every process finds it when it next needs room.
engram_status engram_pool_add_device(const engram_pool *pool,
                                     const char *path,
                                     bool force);

// Checks all of a pool, and lists what does not agree: nothing, of a sound one. What cannot be
// checked at all is an error.
engram_status engram_pool_verify(const char *path,
                                 engram_list **problems);

// Finds the objects below a group of which a query is true: their paths from the root of the
// namespace and their ids, in the order that the query asks for.
engram_status engram_query(const engram_group *group,
                           const char *query,
                           engram_list **found);

// Counts them.
engram_status engram_query_count(const engram_group *group,
                                 const char *query,
                                 uint64_t *count);

// Copies a box of an array into memory, in C order: `offsets` and `counts` have one number for
// each dimension. Of a blob, a range of its bytes. `nbytes` is the room there is at `data`.
engram_status engram_object_load(const engram_object *object,
                                 size_t ndim,
                                 const uint64_t *offsets,
                                 const uint64_t *counts,
                                 void *data,
                                 size_t nbytes);

// Copies memory into a box of an array, in place, with no lock: many processes may store disjoint
// boxes of one array at once. Where the pool survives a loss of power, so does what was stored,
// from when this returns; `flush` is one of `ENGRAM_FLUSH_...`. On an error part of it may have
// been written.
engram_status engram_object_store(const engram_object *object,
                                  size_t ndim,
                                  const uint64_t *offsets,
                                  const uint64_t *counts,
                                  const void *data,
                                  size_t nbytes,
                                  int flush);

// Copies a whole value into memory: `nbytes` must be what `engram_object_nbytes` says.
engram_status engram_object_read(const engram_object *object, void *data, size_t nbytes);

// Makes all that was written in place so far as durable as the pool is.
engram_status engram_object_flush(const engram_object *object);

// Gives a value as the pool's own memory; for writing in place too, with `write`, and then
// `engram_object_flush` makes what was written durable. What is small and not to be written may be
// a copy.
engram_status engram_object_view(const engram_object *object,
                                 bool write,
                                 engram_view **view);

// The first byte of a view. Of one that is not for writing, nothing may be written there.
void *engram_view_data(const engram_view *view);

// The bytes of a view.
size_t engram_view_nbytes(const engram_view *view);

// Whether it is the pool's own memory, and no copy of what is small.
bool engram_view_is_pool_memory(const engram_view *view);

// Lets go of a view: its memory is not to be touched any more. NULL is nothing.
void engram_view_free(engram_view *view);

// Reserves space for an array that becomes visible when it is published. It holds anything at
// first. `options` may be NULL.
engram_status engram_array_allocate(const engram_group *group,
                                    const char *path,
                                    const engram_dtype *dtype,
                                    size_t ndim,
                                    const uint64_t *shape,
                                    const engram_options *options,
                                    engram_allocation **allocation);

// The memory to be filled; it is the allocation's.
void *engram_allocation_data(const engram_allocation *allocation);

// The bytes of it.
size_t engram_allocation_nbytes(const engram_allocation *allocation);

// Makes the array visible to all, whole. The allocation is freed whatever comes of it; on an error
// nothing is visible and the space goes back. `object` may be NULL.
engram_status engram_allocation_publish(engram_allocation *allocation,
                                        engram_object **object);

// Gives the space back; there was never an array. The allocation is freed. NULL is nothing.
void engram_allocation_abandon(engram_allocation *allocation);

// Begins to watch for objects below a group of which a query becomes true; with `existing`, those
// of which it is true already are given first. The query has no order and no limit. A forked child
// begins its own.
engram_status engram_watch_begin(const engram_group *group,
                                 const char *query,
                                 bool existing,
                                 engram_watch **watch);

// Sleeps until a commit of any process brings something, for so many seconds; for ever, if the
// number is negative. What has come: paths from the root of the namespace and ids, each once. The
// list is empty if the time is up, if a signal was handled meanwhile, or if another thread has
// called `engram_watch_wake`.
engram_status engram_watch_wait(const engram_watch *watch,
                                double seconds,
                                engram_list **found);

// Has those who wait return, in whichever thread; or, where none does, the next.
engram_status engram_watch_wake(const engram_watch *watch);

// Ends a watch, which no thread waits for. NULL is nothing.
void engram_watch_free(engram_watch *watch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ENGRAM_H */
