/* Memory for this library, also in a signal handler that has come amid the program's own malloc.
 *
 * A handler may open a file, and the C library's malloc may be what it has interrupted: its locks
 * would never come free. So as long as the thread is in a handler, what this library and LMDB in it
 * ask for comes from slots of memory that are taken and given back by one atomic instruction. What
 * the C library has given is not given back by a handler, but kept in a list, which is emptied
 * outside of handlers. These functions have the names of the C library's, and are seen in this
 * library alone.
 *
 * A program may bring a malloc of its own. The C library calls that one, and frees by it what this
 * library has asked it for, or gives this library what is to be freed by it. So what is not taken
 * from the slots comes from the program's functions, whosever they are. What a program is to free
 * comes from `engram_program_malloc`.
 *
 * Where there are no slots any more, the C library's malloc is asked all the same. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Slots of 32 bytes to 4 MiB, each twice the one before. */
enum { SMALLEST = 5, CLASSES = 18, MOST = 4096, WORD = 64 };
#define EACH ((size_t)16 << 20)
#define STACK ((size_t)8 << 20)

static _Atomic(uintptr_t) slots;
static _Atomic uint64_t taken[CLASSES][MOST / WORD];

/* What is to be freed outside of handlers; each begins with the next. */
static _Atomic(void **) kept;

/* Where on the stack the thread's handler was begun; 0: it is in none. */
static __thread uintptr_t handling __attribute__((tls_model("initial-exec")));

HIDDEN uintptr_t engram_handling(uintptr_t frame) {
    uintptr_t before = handling;
    handling = frame;
    return before;
}

static int is_handling(void) {
    if (handling == 0) return 0;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    /* A stack grows downwards: the handler was left by a jump. */
    if (here > handling && here - handling < STACK) handling = 0;
    return handling != 0;
}

#define REAL(name, type)                                                   \
    static type name##_of_program(void) {                                  \
        static _Atomic(void *) found;                                      \
        void *known = atomic_load_explicit(&found, memory_order_relaxed);  \
        if (known == NULL) {                                               \
            known = dlsym(RTLD_DEFAULT, #name);                            \
            atomic_store_explicit(&found, known, memory_order_relaxed);    \
        }                                                                  \
        return (type)known;                                                \
    }
typedef void *(*Mallocs)(size_t);
typedef void *(*Callocs)(size_t, size_t);
typedef void *(*Reallocs)(void *, size_t);
typedef void (*Frees)(void *);
typedef int (*Aligns)(void **, size_t, size_t);
REAL(malloc, Mallocs)
REAL(calloc, Callocs)
REAL(realloc, Reallocs)
REAL(free, Frees)
REAL(posix_memalign, Aligns)

/* Finds the program's functions before a handler needs them. */
HIDDEN void engram_memory_begin(void) {
    malloc_of_program(), calloc_of_program(), realloc_of_program(), free_of_program();
    posix_memalign_of_program();
}

/* Memory that the program frees. */
HIDDEN void *engram_program_malloc(size_t size) {
    return malloc_of_program()(size);
}

static uintptr_t all(void) {
    uintptr_t at = atomic_load(&slots), none = 0;
    if (at != 0) return at;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long made =
        syscall(SYS_mmap, NULL, CLASSES * EACH, PROT_READ | PROT_WRITE, flags, -1, (off_t)0);
    if (made == -1) return 0;
    if (atomic_compare_exchange_strong(&slots, &none, (uintptr_t)made)) return (uintptr_t)made;
    syscall(SYS_munmap, made, CLASSES * EACH);
    return none;
}

static int class_of(const void *at) {
    uintptr_t from = atomic_load_explicit(&slots, memory_order_relaxed);
    uintptr_t place = (uintptr_t)at - from;
    return from != 0 && place < CLASSES * EACH ? (int)(place / EACH) : -1;
}

static size_t size_of(int class) {
    return (size_t)1 << (SMALLEST + class);
}

/* A slot of this size at least, which is aligned to its own; NULL: there is none. */
static void *take(size_t size) {
    uintptr_t from = all();
    int class = 0;
    while (class < CLASSES && size_of(class) < size) class++;
    for (; from != 0 && class < CLASSES; class++) {
        size_t count = EACH / size_of(class) < MOST ? EACH / size_of(class) : MOST;
        for (size_t at = 0; at < count; at++) {
            _Atomic uint64_t *word = &taken[class][at / WORD];
            uint64_t bit = (uint64_t)1 << at % WORD;
            if (atomic_load_explicit(word, memory_order_relaxed) & bit) continue;
            if (!(atomic_fetch_or(word, bit) & bit))
                return (void *)(from + class * EACH + at * size_of(class));
        }
    }
    return NULL;
}

static void give_back(void *at, int class) {
    size_t slot = ((uintptr_t)at - atomic_load(&slots) - class * EACH) / size_of(class);
    atomic_fetch_and(&taken[class][slot / WORD], ~((uint64_t)1 << slot % WORD));
}

/* Frees what handlers could not. */
static void settle(void) {
    if (atomic_load_explicit(&kept, memory_order_relaxed) == NULL) return;
    void **next = atomic_exchange(&kept, NULL);
    while (next != NULL) {
        void **one = next;
        next = *one;
        free_of_program()(one);
    }
}

HIDDEN void *malloc(size_t size) {
    if (is_handling()) {
        void *at = take(size);
        if (at != NULL) return at;
    } else {
        settle();
    }
    return malloc_of_program()(size);
}

HIDDEN void *calloc(size_t count, size_t each) {
    size_t size;
    if (is_handling() && !__builtin_mul_overflow(count, each, &size)) {
        void *at = take(size);
        if (at != NULL) return memset(at, 0, size);
    }
    return calloc_of_program()(count, each);
}

HIDDEN void free(void *at) {
    if (at == NULL) return;
    int class = class_of(at);
    if (class >= 0) {
        give_back(at, class);
    } else if (!is_handling()) {
        settle();
        free_of_program()(at);
    } else {
        void **first = atomic_load(&kept);
        do {
            *(void **)at = first;
        } while (!atomic_compare_exchange_weak(&kept, &first, at));
    }
}

HIDDEN void *realloc(void *at, size_t size) {
    int class = at == NULL ? -1 : class_of(at);
    if (at == NULL) return malloc(size);
    if (class < 0 && !is_handling()) return realloc_of_program()(at, size);
    size_t known = class < 0 ? malloc_usable_size(at) : size_of(class);
    if (size <= known) return at;
    void *more = malloc(size);
    if (more == NULL) return NULL;
    memcpy(more, at, known);
    free(at);
    return more;
}

HIDDEN int posix_memalign(void **to, size_t alignment, size_t size) {
    if (is_handling()) {
        void *at = take(size > alignment ? size : alignment);
        if (at != NULL) {
            *to = at;
            return 0;
        }
    }
    return posix_memalign_of_program()(to, alignment, size);
}
