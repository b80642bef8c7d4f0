/* Clusters from C, without MPI: two shares of one publication, in one process, which carry their
 * texts by hand. The arguments are the cluster, its etcd, and the node pool of this host. */
#define _POSIX_C_SOURCE 200809L
#include <engram_cluster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DONE(call)                                                                                 \
    do {                                                                                           \
        if ((call) != ENGRAM_STATUS_OK) {                                                          \
            printf("line %d: %s: %s\n", __LINE__, #call, engram_cluster_last_error());             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define IS(truth)                                                                                  \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            printf("line %d: not so: %s (%s)\n", __LINE__, #truth, engram_cluster_last_error());   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define REFUSED(status, call) IS((call) == ENGRAM_STATUS_##status)

static const char *spec;

/* Publishes what two shares have. */
static void publish(engram_share *one, engram_share *other) {
    char *told[2], *sealed[2], *plan;
    DONE(engram_share_told(one, &told[0]));
    DONE(engram_share_told(other, &told[1]));
    DONE(engram_share_plan(one, 2, (const char *const *)told, &plan));
    /* A line for each. */
    char *line = strdup(plan), *second = strchr(line, '\n');
    IS(second);
    *second++ = 0;
    DONE(engram_share_seal(one, line, &sealed[0]));
    DONE(engram_share_seal(other, second, &sealed[1]));
    free(line);
    REFUSED(ARGUMENT, engram_share_told(one, &told[0]));
    REFUSED(ARGUMENT, engram_share_publish(one, 1, (const char *const *)told, plan,
                                           (const char *const *)sealed));
    REFUSED(ARGUMENT, engram_share_publish(one, 2, (const char *const *)told, "",
                                           (const char *const *)sealed));
    const char *const none[] = {"{}", "{}"};
    REFUSED(ARGUMENT, engram_share_publish(one, 2, (const char *const *)told, plan, none));
    DONE(engram_share_publish(one, 2, (const char *const *)told, plan,
                              (const char *const *)sealed));
    for (int at = 0; at < 2; ++at) {
        engram_cluster_string_free(told[at]);
        engram_cluster_string_free(sealed[at]);
    }
    engram_cluster_string_free(plan);
}

static void shares(engram_cluster *cluster) {
    engram_share *one, *other;
    char *token;
    DONE(engram_share_begin(cluster, &token, &one));
    REFUSED(ARGUMENT, engram_share_join(cluster, token, 0, &other));
    REFUSED(ARGUMENT, engram_share_join(cluster, "{}", 1, &other));
    DONE(engram_share_join(cluster, token, 1, &other));
    engram_cluster_string_free(token);
    const uint64_t shape[] = {2, 6}, row[] = {1, 6}, first[] = {0, 0}, second[] = {1, 0};
    const uint64_t three[] = {1, 3}, within[] = {1, 2};
    const double zeros[6] = {0}, ones[6] = {1, 1, 1, 1, 1, 1};
    double seen[12];
    DONE(engram_share_array(one, "c/A", spec, 2, shape));
    DONE(engram_share_store(one, "c/A", spec, 2, first, row, zeros, sizeof zeros));
    DONE(engram_share_store(other, "c/A", spec, 2, second, row, zeros, sizeof zeros));
    DONE(engram_share_store(other, "c/A", spec, 2, within, three, ones, 3 * sizeof *ones));
    REFUSED(ARGUMENT, engram_share_store(other, "c/A", spec, 2, second, row, ones, 3));
    REFUSED(ARGUMENT, engram_share_store(other, "c/A", "<f4", 2, second, row, ones, 24));
    REFUSED(ARGUMENT, engram_share_store(other, "c/A", "nonsense", 2, second, row, ones, 48));
    REFUSED(ARGUMENT, engram_share_store(other, NULL, spec, 2, second, row, ones, 48));
    int32_t found, ndim;
    DONE(engram_share_load(other, "c/A", spec, 2, within, three, seen, 24, &found));
    IS(found == 1 && seen[0] == 1 && seen[2] == 1);
    DONE(engram_share_load(other, "c/A", spec, 2, first, shape, seen, sizeof seen, &found));
    IS(found == 2);
    DONE(engram_share_load(other, "c/B", spec, 2, first, shape, seen, sizeof seen, &found));
    IS(found == 0);
    uint64_t dims[2] = {0, 0};
    DONE(engram_share_dims(one, "c/A", &ndim, dims, 2));
    IS(ndim == 2 && dims[0] == 2 && dims[1] == 6);
    DONE(engram_share_dims(other, "c/A", &ndim, NULL, 0));
    IS(ndim == -1);
    /* Both store it whole: the first one's counts. */
    DONE(engram_share_put(one, "c/count", "<i4", 0, NULL, &(int32_t){1}, 4));
    DONE(engram_share_put(other, "c/count", "<i4", 0, NULL, &(int32_t){2}, 4));
    DONE(engram_share_put(one, "c/gone", "<i4", 0, NULL, &(int32_t){1}, 4));
    bool was_there;
    DONE(engram_share_drop(one, "c/gone", &was_there));
    IS(was_there);
    DONE(engram_share_drop(one, "c/gone", &was_there));
    IS(!was_there);
    /* What a child does that was forked meanwhile changes nothing. */
    const pid_t child = fork();
    if (child == 0) {
        char *text;
        REFUSED(ARGUMENT, engram_share_told(one, &text));
        engram_share_free(other, false);
        _exit(0);
    }
    int status = 1;
    IS(waitpid(child, &status, 0) == child && status == 0);
    publish(one, other);
    engram_share_free(other, true);
    engram_share_free(one, true);

    engram_cluster_array *array;
    REFUSED(NOT_FOUND, engram_cluster_array_open(cluster, "c/gone", &array));
    DONE(engram_cluster_array_open(cluster, "c/A", &array));
    IS(engram_cluster_array_ndim(array) == 2 && engram_cluster_array_shape(array)[1] == 6);
    IS(strcmp(engram_cluster_array_spec(array), spec) == 0);
    IS(engram_cluster_array_generation(array) > 0);
    DONE(engram_cluster_array_load(array, 2, first, shape, seen, sizeof seen));
    for (int at = 0; at < 12; ++at) IS(seen[at] == (at >= 8 && at < 11));
    REFUSED(ARGUMENT, engram_cluster_array_load(array, 2, second, shape, seen, sizeof seen));
    REFUSED(ARGUMENT, engram_cluster_array_load(array, 2, first, shape, seen, 8));
    engram_cluster_array_free(array);
    int32_t count = 0;
    DONE(engram_cluster_array_open(cluster, "c/count", &array));
    DONE(engram_cluster_array_load(array, 0, NULL, NULL, &count, sizeof count));
    IS(count == 1);
    engram_cluster_array_free(array);
    char *names;
    DONE(engram_cluster_names(cluster, "c/", &names));
    IS(strcmp(names, "c/A\nc/count\n") == 0);
    engram_cluster_string_free(names);

    /* What is given up is not there. */
    DONE(engram_share_begin(cluster, &token, &one));
    engram_cluster_string_free(token);
    DONE(engram_share_put(one, "c/never", "<i4", 0, NULL, &count, sizeof count));
    engram_share_free(one, false);
    REFUSED(NOT_FOUND, engram_cluster_array_open(cluster, "c/never", &array));
    /* Between the plan and the transaction another replaces it: no array is lost unseen. */
    char *told, *plan, *sealed;
    DONE(engram_share_begin(cluster, &token, &one));
    engram_cluster_string_free(token);
    DONE(engram_share_put(one, "c/count", "<i4", 0, NULL, &count, sizeof count));
    DONE(engram_share_told(one, &told));
    DONE(engram_share_plan(one, 1, (const char *const *)&told, &plan));
    char *line = strdup(plan);
    DONE(engram_share_seal(one, strtok(line, "\n"), &sealed));
    free(line);
    DONE(engram_cluster_remove(cluster, "c/count"));
    REFUSED(BUSY, engram_share_publish(one, 1, (const char *const *)&told, plan,
                                       (const char *const *)&sealed));
    IS(strstr(engram_cluster_last_error(), "ConflictError"));
    engram_cluster_string_free(told);
    engram_cluster_string_free(plan);
    engram_cluster_string_free(sealed);
    engram_share_free(one, false);
    DONE(engram_cluster_remove(cluster, "c/A"));
    REFUSED(NOT_FOUND, engram_cluster_remove(cluster, "c/A"));
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    char *made;
    if (engram_dtype_spec(engram_dtype_scalar(ENGRAM_SCALAR_F64), &made)) return 3;
    spec = made;
    engram_cluster *cluster;
    engram_cluster_options *options;
    REFUSED(NOT_FOUND, engram_cluster_open("nobody", NULL, engram_engine(), &cluster));
    IS(strstr(engram_cluster_last_error(), "nothing is known here of the cluster"));
    REFUSED(ARGUMENT, engram_cluster_open("no body", NULL, engram_engine(), &cluster));
    REFUSED(ARGUMENT, engram_cluster_open(argv[1], NULL, NULL, &cluster));
    DONE(engram_cluster_options_new(&options));
    DONE(engram_cluster_options_etcd(options, argv[2]));
    DONE(engram_cluster_options_pool(options, argv[3]));
    REFUSED(ARGUMENT, engram_cluster_options_ttl(options, -1));
    DONE(engram_cluster_options_ttl(options, 4));
    DONE(engram_cluster_options_deadline(options, 20));
    DONE(engram_cluster_open(argv[1], options, engram_engine(), &cluster));
    engram_cluster_options_free(options);
    bool has_pool;
    DONE(engram_cluster_has_pool(cluster, &has_pool));
    IS(has_pool);
    engram_cluster_node *node;
    DONE(engram_cluster_serve(cluster, "127.0.0.1", &node));
    shares(cluster);
    engram_cluster_node_free(node);
    engram_cluster_close(cluster);
    engram_string_free(made);
    puts("all is well");
    return 0;
}
