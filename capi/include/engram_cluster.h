// Clusters: the node pools of many nodes as one store, engram://NAME.
//
// Generated of cluster/c/src by cbindgen: do not edit. The contract of all functions is that of
// engram.h, and statuses are the same; engram_cluster_last_error() says what was wrong. A program
// links with libengram_cluster and libengram, and gives engram_cluster_open() what engram_engine()
// gives.
//
// What several processes publish together, such as ranks of MPI, takes five steps:
//
// 1. One process begins (engram_share_begin), and carries its token to the others, which join.
// 2. Each stores what it has in the pool of its own node: engram_share_store, engram_share_put.
// 3. Each tells what it has made (engram_share_told); the first draws up a plan of it.
// 4. Each is given its line of the plan, seals what that says, and tells the first.
// 5. The first publishes. The others are told how that ended, and all free their shares.



#ifndef ENGRAM_CLUSTER_H
#define ENGRAM_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "engram.h"

// An array of a cluster, in the generation that was looked up.
typedef struct engram_cluster_array engram_cluster_array;

// An open cluster.
typedef struct engram_cluster engram_cluster;

// The part that a process takes in serving a node pool. Several handles of one pool share it, and
// it ends when the last of them is freed.
typedef struct engram_cluster_node engram_cluster_node;

// How a cluster is opened. What is not set is taken from this user's file of the cluster.
typedef struct engram_cluster_options engram_cluster_options;

// A process's share in a publication.
typedef struct engram_share engram_share;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Looks an array up by its name. Free it with `engram_cluster_array_free`.
engram_status engram_cluster_array_open(const engram_cluster *cluster,
                                        const char *path,
                                        engram_cluster_array **array);

// The type of the array's items, in the form that `engram_dtype_spec` gives. The string belongs to
// the array.
const char *engram_cluster_array_spec(const engram_cluster_array *array);

// The number of the array's dimensions.
size_t engram_cluster_array_ndim(const engram_cluster_array *array);

// The array's shape: one length for each dimension. It belongs to the array.
const uint64_t *engram_cluster_array_shape(const engram_cluster_array *array);

// The array's generation: a number that grows with each publication of the name.
uint64_t engram_cluster_array_generation(const engram_cluster_array *array);

// Reads a box of the array into memory, from whatever nodes it lies on, in the generation that the
// name has now. Where no part covers the box, it holds the array's fill value.
engram_status engram_cluster_array_load(const engram_cluster_array *array,
                                        size_t ndim,
                                        const uint64_t *offsets,
                                        const uint64_t *counts,
                                        void *data,
                                        size_t nbytes);

// Frees an array. NULL is allowed, and does nothing.
void engram_cluster_array_free(engram_cluster_array *array);

// Makes options. Free them with `engram_cluster_options_free`.
engram_status engram_cluster_options_new(engram_cluster_options **options);

// Sets where etcd is: endpoints `HOST:PORT`, with commas between them.
engram_status engram_cluster_options_etcd(engram_cluster_options *options,
                                          const char *endpoints);

// Sets the path of this host's node pool.
engram_status engram_cluster_options_pool(engram_cluster_options *options,
                                          const char *path);

// Sets the folder with the certificate of this process.
engram_status engram_cluster_options_tls(engram_cluster_options *options,
                                         const char *folder);

// Sets how long a call waits for others, in seconds. The default is 30.
engram_status engram_cluster_options_deadline(engram_cluster_options *options,
                                              double deadline);

// Sets how long leases run, in seconds. The default is 15.
engram_status engram_cluster_options_ttl(engram_cluster_options *options, double ttl);

// Frees options. NULL is allowed, and does nothing.
void engram_cluster_options_free(engram_cluster_options *options);

// Opens a cluster by its name, or by its URL `engram://NAME`. The engine is what `engram_engine()`
// gives. Without options, everything is taken from this user's file of the cluster, which a node
// writes when it is started. Close the cluster with `engram_cluster_close`.
engram_status engram_cluster_open(const char *name,
                                  const engram_cluster_options *options,
                                  const void *engine,
                                  engram_cluster **cluster);

// Closes a cluster. Its arrays and shares must have been freed. NULL is allowed, and does nothing.
void engram_cluster_close(engram_cluster *cluster);

// Gives whether this host has a node pool of the cluster, into which this process can store.
engram_status engram_cluster_has_pool(const engram_cluster *cluster,
                                      bool *has_pool);

// Gives the names that begin with a prefix, one in each line, in a string to be freed.
engram_status engram_cluster_names(const engram_cluster *cluster,
                                   const char *prefix,
                                   char **names);

// Removes a name. The nodes that hold its parts free them.
engram_status engram_cluster_remove(const engram_cluster *cluster, const char *path);

// Takes part in serving this host's node pool, from threads of this process, until the node is
// freed. Of the processes of a host that take part one serves, and the others wait for its end.
// Returns when the node is served, by whichever. `host` is the name or address at which others
// find this host; NULL: that of the node before, or the host's name.
engram_status engram_cluster_serve(const engram_cluster *cluster,
                                   const char *host,
                                   engram_cluster_node **node);

// Ends this process's part in serving. The data stay in the pool. NULL is allowed, and does
// nothing.
void engram_cluster_node_free(engram_cluster_node *node);

// The message of this thread's last call of this library that failed. It stays until the thread's
// next call that fails; "" if none has failed.
const char *engram_cluster_last_error(void);

// Frees a string that a function of this library has given to be freed. NULL is allowed, and does
// nothing.
void engram_cluster_string_free(char *string);

// Begins a publication, as its publisher: a share of place 0, and the token for the others, in a
// string to be freed. The share is freed with `engram_share_free`.
engram_status engram_share_begin(const engram_cluster *cluster,
                                 char **token,
                                 engram_share **share);

// Takes part in a publication, as the process of this place: each has another, from 1 on.
engram_status engram_share_join(const engram_cluster *cluster,
                                const char *token,
                                uint32_t place,
                                engram_share **share);

// Declares an array: its name, type and shape. One process is enough. If several do so, they must
// say the same.
engram_status engram_share_array(const engram_share *share,
                                 const char *path,
                                 const char *spec,
                                 size_t ndim,
                                 const uint64_t *shape);

// Stores a box of an array in this host's node pool. A box within one that this process has stored
// is written in place.
engram_status engram_share_store(const engram_share *share,
                                 const char *path,
                                 const char *spec,
                                 size_t ndim,
                                 const uint64_t *offsets,
                                 const uint64_t *counts,
                                 const void *data,
                                 size_t nbytes);

// Stores an array as a whole, or a single value, which has no dimensions. Of several processes
// that do so, the first one's counts.
engram_status engram_share_put(const engram_share *share,
                               const char *path,
                               const char *spec,
                               size_t ndim,
                               const uint64_t *shape,
                               const void *data,
                               size_t nbytes);

// Reads a box of what this process has stored, and not published yet. `found` is 0 where it makes
// no such array, 1 where the box was copied, and 2 where it has stored less than the box.
engram_status engram_share_load(const engram_share *share,
                                const char *path,
                                const char *spec,
                                size_t ndim,
                                const uint64_t *offsets,
                                const uint64_t *counts,
                                void *data,
                                size_t nbytes,
                                int32_t *found);

// Gives the dims of an array that this process makes and has said them of. `ndim` is -1 where it
// has not; no more than `most` are written.
engram_status engram_share_dims(const engram_share *share,
                                const char *path,
                                int32_t *ndim,
                                uint64_t *dims,
                                size_t most);

// Gives up what this process makes of an array; `was_there` says whether there was anything.
engram_status engram_share_drop(const engram_share *share,
                                const char *path,
                                bool *was_there);

// Gives what this process has made, for the publisher, in a string to be freed.
engram_status engram_share_told(const engram_share *share, char **told);

// As the publisher: gives the plan for what all processes have told, in the order of their places:
// a line for each, all of them in a string to be freed.
engram_status engram_share_plan(const engram_share *share,
                                size_t count,
                                const char *const *told,
                                char **plan);

// Seals this process's parts as its line of the plan has them, and gives what they sum up to, for
// the publisher, in a string to be freed.
engram_status engram_share_seal(const engram_share *share,
                                const char *line,
                                char **sealed);

// As the publisher: publishes what was planned and is sealed.
engram_status engram_share_publish(const engram_share *share,
                                   size_t count,
                                   const char *const *told,
                                   const char *plan,
                                   const char *const *sealed);

// Ends and frees a share. With `is_published`, what this process has stored stays; otherwise its
// space is given back. NULL is allowed, and does nothing.
void engram_share_free(engram_share *share,
                       bool is_published);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ENGRAM_CLUSTER_H */
