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

// An array, in the generation that was looked up.
typedef struct engram_cluster_array engram_cluster_array;

// An open cluster.
typedef struct engram_cluster engram_cluster;

// A process's part in serving a node pool. Those of one pool share it: it ends with the last.
typedef struct engram_cluster_node engram_cluster_node;

// How a cluster is opened: what is not said is as this user's file of the cluster says.
typedef struct engram_cluster_options engram_cluster_options;

// A process's share in a publication.
typedef struct engram_share engram_share;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Looks an array up by its name. It is freed with `engram_cluster_array_free`.
engram_status engram_cluster_array_open(const engram_cluster *cluster,
                                        const char *path,
                                        engram_cluster_array **array);

// The type of its items as `engram_dtype_spec` gives it: the array's.
const char *engram_cluster_array_spec(const engram_cluster_array *array);

// The number of its dimensions.
size_t engram_cluster_array_ndim(const engram_cluster_array *array);

// How long it is in each dimension: the array's.
const uint64_t *engram_cluster_array_shape(const engram_cluster_array *array);

// A number that grows with each publication of the name.
uint64_t engram_cluster_array_generation(const engram_cluster_array *array);

// Reads a box of the array into memory of its bytes, wherever it lies, in the generation that the
// name has now. What no part covers is the array's fill value.
engram_status engram_cluster_array_load(const engram_cluster_array *array,
                                        size_t ndim,
                                        const uint64_t *offsets,
                                        const uint64_t *counts,
                                        void *data,
                                        size_t nbytes);

// Frees an array. NULL is nothing.
void engram_cluster_array_free(engram_cluster_array *array);

// Makes options; they are freed with `engram_cluster_options_free`.
engram_status engram_cluster_options_new(engram_cluster_options **options);

// Says where etcd is: endpoints `HOST:PORT`, with commas between them.
engram_status engram_cluster_options_etcd(engram_cluster_options *options,
                                          const char *endpoints);

// Says which node pool this host has.
engram_status engram_cluster_options_pool(engram_cluster_options *options,
                                          const char *path);

// Says in which folder the certificate of this process is.
engram_status engram_cluster_options_tls(engram_cluster_options *options,
                                         const char *folder);

// Says how long anything is waited for, in seconds; 30 if nothing is said.
engram_status engram_cluster_options_deadline(engram_cluster_options *options,
                                              double deadline);

// Says how long leases run, in seconds; 15 if nothing is said.
engram_status engram_cluster_options_ttl(engram_cluster_options *options, double ttl);

// Frees options. NULL is nothing.
void engram_cluster_options_free(engram_cluster_options *options);

// Opens a cluster by its name, or its URL `engram://NAME`. The engine is `engram_engine()`.
// Without options everything is as this user's file of the cluster says, which a node writes when
// it is started. It is closed with `engram_cluster_close`.
engram_status engram_cluster_open(const char *name,
                                  const engram_cluster_options *options,
                                  const void *engine,
                                  engram_cluster **cluster);

// Closes a cluster, whose arrays and shares have been freed. NULL is nothing.
void engram_cluster_close(engram_cluster *cluster);

// Tells whether this host has a node pool of the cluster, which this process can store into.
engram_status engram_cluster_has_pool(const engram_cluster *cluster,
                                      bool *has_pool);

// Gives the names that begin so, one in each line, in a string to be freed.
engram_status engram_cluster_names(const engram_cluster *cluster,
                                   const char *prefix,
                                   char **names);

// Removes a name. Its parts are freed by those who hold them.
engram_status engram_cluster_remove(const engram_cluster *cluster, const char *path);

// Takes part in serving this host's node pool, from threads of this process, until the node is
// freed. Of the processes of a host that take part one serves, and the others wait for its end.
// Returns when the node is served, by whichever. `host` is the name or address at which others
// find this host; NULL: that of the node before, or the host's name.
engram_status engram_cluster_serve(const engram_cluster *cluster,
                                   const char *host,
                                   engram_cluster_node **node);

// Ends this process's part. What lies in the pool stays. NULL is nothing.
void engram_cluster_node_free(engram_cluster_node *node);

// What the last failed call of this library and thread said. It stays until the thread's next call
// that fails; empty where none has.
const char *engram_cluster_last_error(void);

// Frees a string that a function of this library has given to be freed. NULL is nothing.
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

// Says what array is to be of a name. One process is enough; those that say it say the same.
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

// Ends and frees a share: with `is_published` what it has made stays, and otherwise it is given
// back. NULL is nothing.
void engram_share_free(engram_share *share,
                       bool is_published);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ENGRAM_CLUSTER_H */
