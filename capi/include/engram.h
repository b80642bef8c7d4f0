// Engram: arrays in memory that every process on the node maps, and that outlive their program.
//
// Generated of capi/src by cbindgen: do not edit. The contract of all functions:
//
// - A function that can fail returns a status, which is 0 on success. It sets its outputs, which
//   come last, only then. After an error, engram_last_error() says what was wrong, in that thread.
// - A handle that a function gives is freed by its own function, whose name ends with _free, or by
//   the function that ends it, such as engram_pool_close(). Strings and arrays that a handle gives
//   belong to the handle. Those that are "to be freed" go to engram_string_free().
// - Strings are UTF-8 and end with NUL. Paths of the filesystem are any bytes.
// - NULL means "none" where a function says so, and is refused elsewhere.
// - Several threads may use the same handle at the same time. A call that frees a handle, or
//   changes options or a structure, must be the only one that uses it at that moment. Batches and
//   locks belong to their thread. In a forked child, pools, groups, objects and views stay valid.



#ifndef ENGRAM_H
#define ENGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The result of a call: 0, or the number of the kind of its error, by what the caller can do about
// it.
//
// The numbers are those of the engine's one table, which only ever grows at its end.
typedef enum {
  // The call has succeeded.
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
  // The bytes on the media are not those that were written.
  ENGRAM_STATUS_CORRUPT = 7,
  // Another process or thread holds it, or has changed it.
  ENGRAM_STATUS_BUSY = 8,
  // Not a pool; a pool whose creation was not finished, or of a newer version.
  ENGRAM_STATUS_FORMAT = 9,
  // The name is not valid.
  ENGRAM_STATUS_INVALID_NAME = 10,
  // A dtype, shape, value, pointer or handle is not valid here.
  ENGRAM_STATUS_ARGUMENT = 11,
  // The filesystem or environment cannot carry a pool.
  ENGRAM_STATUS_UNSUPPORTED = 12,
  // The operating system failed in a way that has no kind of its own, or the engine has a
  // defect.
  ENGRAM_STATUS_OS = 13,
  // The last sync of a commit failed, so the change may be there or not. Close the pool, run
  // `engram verify`, check whether the change is there, and repeat it if it is not.
  ENGRAM_STATUS_COMMIT_UNCERTAIN = 14,
  // The pool's files were removed while this process had it open. Its values are lost when no
  // process maps them any more.
  ENGRAM_STATUS_POOL_GONE = 15,
  // Only its owner may enter the namespace, so nobody would read what is published there.
  ENGRAM_STATUS_CLOSED_NAMESPACE = 16,
  // A loss of power may have damaged the pool, and nobody has verified it since.
  ENGRAM_STATUS_UNVERIFIED = 17,
} engram_status;

// The types of numbers, in native byte order.
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
  // An array or a blob; the list does not say which.
  ENGRAM_MEMBER_KIND_OBJECT = 5,
} engram_member_kind;

// Who sees a member of a group.
typedef enum {
  // The user who made it.
  ENGRAM_SCOPE_PRIVATE = 0,
  // The namespace's owner, and its group where the namespace's mode lets that write.
  ENGRAM_SCOPE_SHARED = 1,
  // All whom the namespace's mode admits. Nobody changes it.
  ENGRAM_SCOPE_PUBLISHED = 2,
} engram_scope;

// What a pool must survive.
typedef enum {
  // As much as the filesystem allows: on tmpfs the death of any process, on others the loss of
  // power.
  ENGRAM_SURVIVES_AUTO = 0,
  // The death of any process.
  ENGRAM_SURVIVES_PROCESS = 1,
  // The loss of power, too.
  ENGRAM_SURVIVES_SYSTEM = 2,
} engram_survives;

// When the attributes of an object are indexed.
typedef enum {
  // As the object's group says.
  ENGRAM_INDEXING_INHERITED = 0,
  // In the commit that makes the object.
  ENGRAM_INDEXING_SYNC = 1,
  // Soon after that commit.
  ENGRAM_INDEXING_ASYNC = 2,
  // Never: queries find the object by its built-in fields only.
  ENGRAM_INDEXING_NEVER = 3,
} engram_indexing;

// What a program may do with a pool.
typedef enum {
  // Reading.
  ENGRAM_OPEN_MODE_READ = 0,
  // Reading and writing.
  ENGRAM_OPEN_MODE_READ_WRITE = 1,
} engram_open_mode;

// When stored values are made durable, in a pool that survives a loss of power.
typedef enum {
  // Once, after all values have been copied.
  ENGRAM_FLUSH_ONCE = 0,
  // Piece by piece, while they are copied.
  ENGRAM_FLUSH_AS_WRITTEN = 1,
} engram_flush;

// Space of the pool that a program fills. It then becomes an array, or is given back.
typedef struct engram_allocation engram_allocation;

// The value of an attribute at the moment when it was asked for.
typedef struct engram_attribute engram_attribute;

// A batch, which runs in the thread that began it.
typedef struct engram_batch engram_batch;

// The type of the items of an array or an attribute.
typedef struct engram_dtype engram_dtype;

// A group.
typedef struct engram_group engram_group;

// Settings of the index. What is not set is up to the group above.
typedef struct engram_index_settings engram_index_settings;

// Names or paths, each with an id if it has one.
typedef struct engram_list engram_list;

// A lock that is held.
typedef struct engram_lock engram_lock;

// An array or a blob. Its type and shape are those of the moment when the handle was made or
// refreshed. The type of an object never changes.
typedef struct engram_object engram_object;

// How an array or a blob is made.
typedef struct engram_options engram_options;

// An open pool.
typedef struct engram_pool engram_pool;

// How a pool is made.
typedef struct engram_pool_options engram_pool_options;

// A source of memory without a name, in a pool. The memory goes back to the pool when it is freed,
// when the scratch is, and when the process ends, however it ends.
typedef struct engram_scratch engram_scratch;

// A value as memory. It keeps its contents until the view is freed, even if this or another
// process deletes or replaces the object.
typedef struct engram_view engram_view;

// A watch of the objects that appear below a group.
typedef struct engram_watch engram_watch;

// Where the space of a pool's first namespace is, in bytes.
typedef struct {
  // The most that values may take.
  uint64_t size;
  // What values take.
  uint64_t used;
  // What the pool has taken from its devices so far.
  uint64_t arena;
  // What of `arena` is free.
  uint64_t free;
  // What of `arena` is reserved, or freed but still in use by a view.
  uint64_t pending;
  // What the catalog takes, in addition.
  uint64_t catalog;
} engram_space;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Sets an attribute to one number or structure (`ndim` 0), or to an array of them in C order.
engram_status engram_attr_set(const engram_group *group,
                              const char *path,
                              const char *key,
                              const engram_dtype *dtype,
                              size_t ndim,
                              const uint64_t *shape,
                              const void *data,
                              size_t nbytes);

// Sets an attribute to a string of `len` bytes of UTF-8. The string may contain NUL bytes, but not
// end with one.
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

// Gives an attribute's value. If there is no such attribute, the status is
// `ENGRAM_STATUS_NOT_FOUND`.
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

// The type of the attribute's items; NULL for NULL. The type belongs to the attribute.
const engram_dtype *engram_attribute_dtype(const engram_attribute *attribute);

// The number of the attribute's dimensions; 0 for a single value.
size_t engram_attribute_ndim(const engram_attribute *attribute);

// The attribute's shape: one length for each dimension. It belongs to the attribute.
const uint64_t *engram_attribute_shape(const engram_attribute *attribute);

// The attribute's bytes, which belong to the attribute. For a single string, these are its
// characters, without a NUL at the end.
const void *engram_attribute_data(const engram_attribute *attribute);

// The number of the attribute's bytes.
size_t engram_attribute_nbytes(const engram_attribute *attribute);

// Gives one string of an attribute of strings: the item at `at` of an array, or a single string at
// 0. The string is to be freed. `len` may be NULL.
engram_status engram_attribute_text(const engram_attribute *attribute,
                                    size_t at,
                                    char **text,
                                    size_t *len);

// Frees an attribute's value. NULL is allowed, and does nothing.
void engram_attribute_free(engram_attribute *attribute);

// Begins a batch on a group's namespace, in this thread. If the thread has a batch there already,
// this joins it. What the thread changes until the end becomes visible all at once, or not at all.
engram_status engram_batch_begin(const engram_group *group,
                                 engram_batch **batch);

// Ends a batch, and commits it unless it has joined another batch. The handle is freed, whether
// this succeeds or not. After an error, nothing of the batch is kept.
engram_status engram_batch_commit(engram_batch *batch);

// Ends a batch, and the batch that it has joined, and keeps nothing of either. The handle is
// freed. NULL is allowed, and does nothing.
engram_status engram_batch_abort(engram_batch *batch);

// Gives the type of a number. It belongs to the library, and is never freed. NULL for an unknown
// number.
const engram_dtype *engram_dtype_scalar(int scalar);

// Begins a structure of `size` bytes, padding included (`sizeof`). Fields are added to it with
// `engram_dtype_add_field`.
engram_status engram_dtype_struct(size_t size,
                                  engram_dtype **dtype);

// Adds a field to a structure, at an offset (`offsetof`).
engram_status engram_dtype_add_field(engram_dtype *dtype,
                                     const char *name,
                                     size_t offset,
                                     const engram_dtype *field);

// Gives the type of a field that is itself an array, such as `double v[3]` in a structure.
engram_status engram_dtype_sub(const engram_dtype *base,
                               size_t ndim,
                               const uint64_t *shape,
                               engram_dtype **dtype);

// Which type of number this is; `ENGRAM_SCALAR_OTHER` for any other type, and for NULL.
engram_scalar engram_dtype_which(const engram_dtype *dtype);

// The number of bytes of one item; 0 for strings of variable length, and for NULL.
size_t engram_dtype_itemsize(const engram_dtype *dtype);

// The number of a structure's fields; 0 for any other type, and for NULL.
size_t engram_dtype_nfields(const engram_dtype *dtype);

// Gives a field's name, offset and type. Name and type belong to the dtype. Each output may be
// NULL.
engram_status engram_dtype_field(const engram_dtype *dtype,
                                 size_t at,
                                 const char **name,
                                 size_t *offset,
                                 const engram_dtype **field);

// Whether two types have the same items: the same bytes, and the same names of fields.
bool engram_dtype_equal(const engram_dtype *one, const engram_dtype *other);

// Gives the type as numpy writes it, such as "float64", in a string to be freed.
engram_status engram_dtype_text(const engram_dtype *dtype, char **text);

// Frees a type that `engram_dtype_struct` or `engram_dtype_sub` has made. NULL and types that
// belong to the library are allowed; nothing is done to them.
void engram_dtype_free(engram_dtype *dtype);

// The message of this thread's last call that failed: what was wrong, with the value, and what to
// do. It stays until the thread's next call that fails; "" if none has failed.
const char *engram_last_error(void);

// The name of a status, which is the name of the Python exception; "OK" for 0.
const char *engram_status_name(int status);

// The errno that is nearest to a status, such as `ENOENT` for `ENGRAM_STATUS_NOT_FOUND`; 0 for 0.
int engram_status_errno(int status);

// The library's version, such as "0.1.0".
const char *engram_version(void);

// Frees a string that a function has given to be freed. NULL is allowed, and does nothing.
void engram_string_free(char *string);

// Makes a group, and the groups above it that are missing. `new` may be NULL.
engram_status engram_group_create(const engram_group *group,
                                  const char *path,
                                  engram_group **new_);

// Gives a group, and makes it if it is not there. `found` may be NULL.
engram_status engram_group_require(const engram_group *group,
                                   const char *path,
                                   engram_group **found);

// Gives a group that exists.
engram_status engram_group_open(const engram_group *group,
                                const char *path,
                                engram_group **found);

// The group's id; 0 for NULL.
uint64_t engram_group_gid(const engram_group *group);

// Gives a group's path from the root of its namespace, in a string to be freed. The path of the
// root is "".
engram_status engram_group_path(const engram_group *group,
                                char **path);

// Lists a group's members in byte order of their names, each with its id and kind.
engram_status engram_group_list(const engram_group *group, engram_list **members);

// Gives the id and the kind of the member at a path. The kind is `ENGRAM_MEMBER_KIND_NOTHING` if
// there is none. `id` may be NULL.
engram_status engram_lookup(const engram_group *group,
                            const char *path,
                            uint64_t *id,
                            engram_member_kind *kind);

// Deletes a member. A group is deleted with everything in it. Views of values stay valid.
engram_status engram_delete(const engram_group *group, const char *path);

// Gives a member another name, in the same group or in another of the same namespace.
engram_status engram_move(const engram_group *group,
                          const char *old_path,
                          const engram_group *new_group,
                          const char *new_path);

// Frees a group's handle. NULL is allowed, and does nothing.
void engram_group_free(engram_group *group);

// Gives new settings, of which nothing is set.
engram_status engram_index_settings_new(engram_index_settings **settings);

// Sets when attributes are indexed: one of `ENGRAM_INDEXING_...`.
engram_status engram_index_settings_indexing(engram_index_settings *settings,
                                             int indexing);

// Sets whether groups of attributes may change: split where they are large, and merge.
engram_status engram_index_settings_dynamic(engram_index_settings *settings, bool on);

// Sets a number by its name: `attributes_per_group` (0 for all in one), `split_threshold`,
// `segment_rows`, `tail_rows`, `merge_sf`, `merge_overlap` or `queue_max`.
engram_status engram_index_settings_number(engram_index_settings *settings,
                                           const char *name,
                                           uint32_t value);

// Splits the index by an attribute: objects in which it is below a number, and the others.
engram_status engram_index_settings_split_on(engram_index_settings *settings,
                                             const char *key,
                                             double value);

// Splits the index by an attribute: objects in which it is below a text, or before the time that
// the text names, and the others.
engram_status engram_index_settings_split_on_text(engram_index_settings *settings,
                                                  const char *key,
                                                  const char *text);

// Sets how what is stored below a group from now on is indexed.
engram_status engram_group_set_index(const engram_group *group,
                                     const engram_index_settings *settings);

// Frees settings. NULL is allowed, and does nothing.
void engram_index_settings_free(engram_index_settings *settings);

// The number of a list's entries; 0 for NULL.
size_t engram_list_len(const engram_list *list);

// Gives an entry's name or path, its id (0 if it has none), and its kind. The text belongs to the
// list. Each output may be NULL.
engram_status engram_list_at(const engram_list *list,
                             size_t at,
                             const char **text,
                             uint64_t *id,
                             engram_member_kind *kind);

// Frees a list with its texts. NULL is allowed, and does nothing.
void engram_list_free(engram_list *list);

// Locks a member, or the group itself if `path` is NULL or "". With `exclusive`, nobody else can
// lock it meanwhile. Without, others can lock it too, but not exclusively. Only those who ask for
// the lock are kept out. The call waits for so many seconds, or for ever if the number is
// negative; after that the status is `ENGRAM_STATUS_BUSY`. The lock belongs to this thread. It
// ends with the process at the latest.
engram_status engram_lock_take(const engram_group *group,
                               const char *path,
                               bool exclusive,
                               double seconds,
                               engram_lock **lock);

// Releases a lock. NULL is allowed, and does nothing.
void engram_lock_free(engram_lock *lock);

// Opens a namespace, and gives its root group. NULL is the name of the namespace that every pool
// has from the beginning.
engram_status engram_namespace_open(const engram_pool *pool,
                                    const char *name,
                                    engram_group **root);

// Makes a namespace with a POSIX mode such as 0770. Its values may take at most `size` bytes; 0
// means as many as in the pool's first namespace.
engram_status engram_namespace_create(const engram_pool *pool,
                                      const char *name,
                                      uint32_t mode,
                                      uint64_t size);

// Lists the namespaces of a pool.
engram_status engram_namespace_list(const engram_pool *pool, engram_list **names);

// Removes a namespace with everything in it. If others use it, the status is `ENGRAM_STATUS_BUSY`.
engram_status engram_namespace_remove(const engram_pool *pool,
                                      const char *name);

// Makes an array of zeros, or with unset values if `options` say so. `options` and `object` may be
// NULL.
engram_status engram_array_create(const engram_group *group,
                                  const char *path,
                                  const engram_dtype *dtype,
                                  size_t ndim,
                                  const uint64_t *shape,
                                  const engram_options *options,
                                  engram_object **object);

// Gives the array at a path, and makes it as `engram_array_create` does if nothing is there. Many
// processes may do so at once. If something else is there, or an array of another type or shape,
// the status is `ENGRAM_STATUS_EXISTS`.
engram_status engram_array_require(const engram_group *group,
                                   const char *path,
                                   const engram_dtype *dtype,
                                   size_t ndim,
                                   const uint64_t *shape,
                                   const engram_options *options,
                                   engram_object **object);

// Stores a whole array of `nbytes` bytes in C order. It is visible to all when this returns, and
// not before. `options` and `object` may be NULL.
engram_status engram_array_put(const engram_group *group,
                               const char *path,
                               const engram_dtype *dtype,
                               size_t ndim,
                               const uint64_t *shape,
                               const void *data,
                               size_t nbytes,
                               const engram_options *options,
                               engram_object **object);

// Stores a blob. It is visible to all when this returns. `options` and `object` may be NULL.
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

// The object's id, which is unique in the pool and never used again; 0 for NULL.
uint64_t engram_object_oid(const engram_object *object);

// What the object is: an array, a blob or strings.
engram_member_kind engram_object_kind(const engram_object *object);

// The type of the object's items; NULL for NULL. The type belongs to the object's handle.
const engram_dtype *engram_object_dtype(const engram_object *object);

// The number of the object's dimensions; 1 for a blob.
size_t engram_object_ndim(const engram_object *object);

// The object's shape: one length for each dimension. It belongs to the object's handle.
const uint64_t *engram_object_shape(const engram_object *object);

// The number of bytes of the object's value.
uint64_t engram_object_nbytes(const engram_object *object);

// The shape of a chunk: one length for each dimension of the array; NULL if the array lies in one
// piece. It belongs to the object's handle.
const uint64_t *engram_object_chunks(const engram_object *object);

// How each chunk is encoded, such as "shuffle+lz4"; "" if the array lies in one piece. The string
// belongs to the object's handle.
const char *engram_object_codec(const engram_object *object);

// Changes the lengths of a chunked array; the number of dimensions stays. Where the array grows it
// holds zeros, and what is cut off is gone. Afterwards the handle has the new shape.
engram_status engram_array_resize(engram_object *object,
                                  size_t ndim,
                                  const uint64_t *shape);

// Appends data to a chunked array along the dimension `axis`. `counts` has the lengths of the
// data, one for each dimension. If several processes append at the same time, their data follow
// one another. Afterwards the handle has the new shape.
engram_status engram_array_append(engram_object *object,
                                  size_t axis,
                                  size_t ndim,
                                  const uint64_t *counts,
                                  const void *data,
                                  size_t nbytes);

// Updates what the handle knows of its object: another process may have changed the shape of a
// chunked array.
engram_status engram_object_refresh(engram_object *object);

// Gives the number of bytes that a value takes in the pool. For a chunked array, these are the
// encoded bytes.
engram_status engram_object_stored_nbytes(const engram_object *object,
                                          uint64_t *nbytes);

// The object's name when the handle was made. The string belongs to the object's handle.
const char *engram_object_name(const engram_object *object);

// Gives the object's path from the root of its namespace, in a string to be freed.
engram_status engram_object_path(const engram_object *object, char **path);

// Frees the handle of an object. NULL is allowed, and does nothing.
void engram_object_free(engram_object *object);

// Gives new options for `engram_pool_create`.
engram_status engram_pool_options_new(engram_pool_options **options);

// Sets what the pool must survive: one of `ENGRAM_SURVIVES_...`.
engram_status engram_pool_options_survives(engram_pool_options *options, int survives);

// Adds a device beside the pool's own path: a folder on another filesystem, or a devdax node.
engram_status engram_pool_options_add_device(engram_pool_options *options,
                                             const char *path);

// Sets the POSIX mode of the pool's first namespace, such as 0770. If it is not set, the namespace
// is for its owner alone.
engram_status engram_pool_options_mode(engram_pool_options *options,
                                       uint32_t mode);

// Sets whether all space is taken from the kernel and mapped now, so that later writes need not
// wait for it.
engram_status engram_pool_options_prefault(engram_pool_options *options,
                                           bool on);

// Sets whether each value has a checksum, which `engram_pool_verify` compares.
engram_status engram_pool_options_checksums(engram_pool_options *options, bool on);

// Sets whether copies run at the speed of persistent memory. This is for evaluation only.
engram_status engram_pool_options_emulate_pmem(engram_pool_options *options, bool on);

// Sets whether a filesystem that is not on Engram's list is accepted. A network filesystem never
// is.
engram_status engram_pool_options_force(engram_pool_options *options,
                                        bool on);

// Frees options. NULL is allowed, and does nothing.
void engram_pool_options_free(engram_pool_options *options);

// Gives new options for functions that make arrays and blobs.
engram_status engram_options_new(engram_options **options);

// Sets whether something that has the name already is replaced, in the same commit.
engram_status engram_options_overwrite(engram_options *options, bool on);

// Sets whether the values of a new array are unset instead of zeros. Unset values show what the
// pool's user has stored there before. Making the array is faster then; use it if you will write
// all of its values.
engram_status engram_options_unset(engram_options *options,
                                   bool on);

// Sets whether the object is read-only from the beginning. This is a hint that protects against
// mistakes.
engram_status engram_options_read_only(engram_options *options,
                                       bool on);

// Sets when the object's attributes are indexed: one of `ENGRAM_INDEXING_...`.
engram_status engram_options_indexing(engram_options *options, int indexing);

// Keeps an array in chunks of this shape, each encoded on its own, so that the array can grow and
// shrink. If `ndim` is 0, Engram chooses the shape. The codec is "none", "lz4", "zstd" or
// "zstd:9"; "shuffle+" may stand before each but "none". NULL means "none". Such an array has no
// view.
engram_status engram_options_chunks(engram_options *options,
                                    size_t ndim,
                                    const uint64_t *chunks,
                                    const char *codec);

// Sets the names of an array's dimensions.
engram_status engram_options_dims(engram_options *options,
                                  size_t ndim,
                                  const char *const *names);

// Frees options. NULL is allowed, and does nothing.
void engram_options_free(engram_options *options);

// The engine of this process, for `engram_cluster_open`: a process has one.
const void *engram_engine(void);

// Gives the type as a cluster has it, such as "<f8", in a string to be freed.
engram_status engram_dtype_spec(const engram_dtype *dtype, char **spec);

// Makes a pool and opens it for writing. Its values may take at most `size` bytes. At `path` there
// is nothing yet, or an empty folder. `options` may be NULL. After an error, nothing is left
// behind.
engram_status engram_pool_create(const char *path,
                                 uint64_t size,
                                 const engram_pool_options *options,
                                 engram_pool **pool);

// Opens a pool. `mode` is `ENGRAM_OPEN_MODE_READ` or `ENGRAM_OPEN_MODE_READ_WRITE`. With `force`,
// a filesystem that is not on Engram's list is accepted.
engram_status engram_pool_open(const char *path,
                               int mode,
                               bool force,
                               engram_pool **pool);

// Closes a pool and frees its handle. Its groups and objects answer `ENGRAM_STATUS_ARGUMENT` from
// then on, and are still to be freed. Views stay valid. If this thread runs a batch on the pool,
// the status is `ENGRAM_STATUS_BUSY`, and the pool stays open. If the pool's files have been
// removed, the status is `ENGRAM_STATUS_POOL_GONE`, and the pool is closed and freed. NULL is
// allowed, and does nothing.
engram_status engram_pool_close(engram_pool *pool);

// Removes a pool with everything in it. If other processes have it open, the status is
// `ENGRAM_STATUS_BUSY`. With `force`, a damaged pool is removed too, as far as its parts can be
// recognized.
engram_status engram_pool_destroy(const char *path,
                                  bool force);

// The pool's folder. The string belongs to the pool.
const char *engram_pool_path(const engram_pool *pool);

// The pool's identity: 32 hexadecimal digits. The string belongs to the pool.
const char *engram_pool_uuid(const engram_pool *pool);

// Whether each commit of the pool survives the loss of power.
bool engram_pool_survives_power(const engram_pool *pool);

// Gives the use of space of the pool's first namespace.
engram_status engram_pool_space(const engram_pool *pool, engram_space *space);

// Sets the most that values may take in the pool's first namespace.
engram_status engram_pool_resize(const engram_pool *pool, uint64_t size);

// Adds a device to a pool. Other processes find it when they next need room.
engram_status engram_pool_add_device(const engram_pool *pool,
                                     const char *path,
                                     bool force);

// Checks all of a pool, and lists its problems. The list of a sound pool is empty. A pool that
// cannot be checked at all is an error.
engram_status engram_pool_verify(const char *path,
                                 engram_list **problems);

// Finds the objects below a group that match a query. Gives their paths from the root of the
// namespace and their ids, in the order that the query asks for.
engram_status engram_query(const engram_group *group,
                           const char *query,
                           engram_list **found);

// Counts the objects below a group that match a query.
engram_status engram_query_count(const engram_group *group,
                                 const char *query,
                                 uint64_t *count);

// Begins to take memory of the pool that a group lies in.
engram_status engram_scratch_new(const engram_group *group, engram_scratch **scratch);

// Gives memory that holds whatever the pool held there before, aligned to 64 bytes. NULL after an
// error, and where `nbytes` is 0.
void *engram_scratch_malloc(const engram_scratch *scratch,
                            size_t nbytes);

// Gives memory for `count` items of `nbytes` each, all zeros. NULL after an error, and where there
// are no bytes.
void *engram_scratch_calloc(const engram_scratch *scratch,
                            size_t count,
                            size_t nbytes);

// Gives memory another length, in another place if need be, with what it held up to the shorter of
// both lengths. With NULL this is `engram_scratch_malloc`. With 0 bytes it frees the memory and
// returns NULL. It also returns NULL after an error: then the memory is as it was.
void *engram_scratch_realloc(const engram_scratch *scratch,
                             void *pointer,
                             size_t nbytes);

// Gives memory whose address is a multiple of `alignment`: a power of two, and no less than the
// size of a pointer.
engram_status engram_scratch_posix_memalign(const engram_scratch *scratch,
                                            size_t alignment,
                                            size_t nbytes,
                                            void **pointer);

// Gives memory back to the pool. NULL is allowed, and does nothing.
engram_status engram_scratch_release(const engram_scratch *scratch, void *pointer);

// Gives all its memory back to the pool, and frees the scratch. NULL is allowed, and does nothing.
void engram_scratch_free(engram_scratch *scratch);

// Tells who sees the member at a path. With NULL or "", this is the group itself.
engram_status engram_scope_of(const engram_group *group,
                              const char *path,
                              engram_scope *scope);

// Sets who sees what is made: `ENGRAM_SCOPE_PRIVATE` or `ENGRAM_SCOPE_SHARED`. If it is not set,
// those see it who see its group.
engram_status engram_options_scope(engram_options *options,
                                   int scope);

// Makes a group of a scope: `ENGRAM_SCOPE_PRIVATE` or `ENGRAM_SCOPE_SHARED`. What is made in it
// has that scope, too, unless its options say another. `new` may be NULL.
engram_status engram_group_create_scoped(const engram_group *group,
                                         const char *path,
                                         int scope,
                                         engram_group **new_);

// Lets the namespace's owner and group see what is private at a path, a group with all that is
// below it, all or nothing. They may change it, too.
engram_status engram_scope_share(const engram_group *group,
                                 const char *path);

// Keeps what is shared at a path to its owner, all or nothing.
engram_status engram_scope_unshare(const engram_group *group, const char *path);

// Lets all read what is at a path whom the namespace's mode admits, all or nothing. Nobody changes
// it any more. Where nobody but the owner would read it, that is refused unless `closed` is true.
engram_status engram_scope_publish(const engram_group *group,
                                   const char *path,
                                   bool closed);

// Withdraws what is published at a path, all or nothing: it is shared again.
engram_status engram_scope_unpublish(const engram_group *group, const char *path);

// Copies a box of an array into memory, in C order. `offsets` and `counts` have one number for
// each dimension. For a blob, this copies a range of its bytes. `nbytes` is the size of the memory
// at `data`.
engram_status engram_object_load(const engram_object *object,
                                 size_t ndim,
                                 const uint64_t *offsets,
                                 const uint64_t *counts,
                                 void *data,
                                 size_t nbytes);

// Copies memory into a box of an array, in place and without a lock. Many processes may store
// disjoint boxes of one array at once. In a pool that survives a loss of power, the values are
// durable when this returns. `flush` is one of `ENGRAM_FLUSH_...`. After an error, a part may have
// been written.
engram_status engram_object_store(const engram_object *object,
                                  size_t ndim,
                                  const uint64_t *offsets,
                                  const uint64_t *counts,
                                  const void *data,
                                  size_t nbytes,
                                  int flush);

// Copies a whole value into memory. `nbytes` must be what `engram_object_nbytes` gives.
engram_status engram_object_read(const engram_object *object, void *data, size_t nbytes);

// Makes everything that was written in place so far as durable as the pool is.
engram_status engram_object_flush(const engram_object *object);

// Gives a value as memory of the pool. With `write`, the program may write there;
// `engram_object_flush` then makes that durable. Without `write`, a small value may be a copy.
engram_status engram_object_view(const engram_object *object,
                                 bool write,
                                 engram_view **view);

// The first byte of a view. Unless the view was made with `write`, nothing may be written there.
void *engram_view_data(const engram_view *view);

// The number of bytes of a view.
size_t engram_view_nbytes(const engram_view *view);

// Whether the view is memory of the pool, and not a copy of a small value.
bool engram_view_is_pool_memory(const engram_view *view);

// Frees a view. Its memory must not be used any more. NULL is allowed, and does nothing.
void engram_view_free(engram_view *view);

// Reserves space for an array, which becomes visible when it is published. The space is not
// zeroed. `options` may be NULL.
engram_status engram_array_allocate(const engram_group *group,
                                    const char *path,
                                    const engram_dtype *dtype,
                                    size_t ndim,
                                    const uint64_t *shape,
                                    const engram_options *options,
                                    engram_allocation **allocation);

// The memory to fill. It belongs to the allocation.
void *engram_allocation_data(const engram_allocation *allocation);

// The number of bytes of the memory to fill.
size_t engram_allocation_nbytes(const engram_allocation *allocation);

// Makes the whole array visible to all. The allocation is freed, whether this succeeds or not.
// After an error, nothing is visible, and the space is given back. `object` may be NULL.
engram_status engram_allocation_publish(engram_allocation *allocation,
                                        engram_object **object);

// Gives the space back, and frees the allocation. No array was ever visible. NULL is allowed, and
// does nothing.
void engram_allocation_abandon(engram_allocation *allocation);

// Begins to watch for objects below a group that come to match a query. With `existing`, objects
// that match already are given first. The query has no order and no limit. A watch is not valid in
// a forked child, which begins its own.
engram_status engram_watch_begin(const engram_group *group,
                                 const char *query,
                                 bool existing,
                                 engram_watch **watch);

// Waits until a commit of any process brings something, for so many seconds, or for ever if the
// number is negative. Gives the paths, from the root of the namespace, and the ids of what has
// come, each once. The list is empty if the time is up, if a signal was handled meanwhile, or if
// another thread has called `engram_watch_wake`.
engram_status engram_watch_wait(const engram_watch *watch,
                                double seconds,
                                engram_list **found);

// Makes `engram_watch_wait` return in every thread that waits on this watch; if none waits, the
// next call returns at once.
engram_status engram_watch_wake(const engram_watch *watch);

// Ends a watch, and frees it. No thread may be waiting on it. NULL is allowed, and does nothing.
void engram_watch_free(engram_watch *watch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ENGRAM_H */
