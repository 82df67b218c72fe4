/* Preloaded into a broker whose units were compiled with -finstrument-functions: notes each call.
 *
 * Each thread keeps the stack of functions that it is in: compiled ones, and those of Python, which
 * perf/walk/traced.py reports. While `on` is set, a call is an event: the function, the one
 * below it in the stack, and the thread. The file is mapped by this process and by the one that
 * sends the request; events of all threads are in one order, that of their calls.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define UNSEEN __attribute__((no_instrument_function))
#define DEPTH_MAX 1024

struct event {
    uint64_t function;
    uint64_t caller; /* 0: the first of its thread */
    uint64_t thread;
};

struct walk {
    _Atomic uint64_t on;
    uint64_t capacity;
    _Atomic uint64_t count; /* above the capacity: events were lost */
    struct event events[];
};

static struct walk *walk;
static __thread uint64_t stack[DEPTH_MAX];
static __thread uint32_t depth;
static __thread uint64_t thread_id;

UNSEEN __attribute__((constructor)) static void walk_open(void) {
    const char *path = getenv("PERF_WALK_FILE");
    struct stat about;
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    if (fstat(fd, &about) == 0) {
        void *mapped = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (mapped != MAP_FAILED) walk = mapped;
    }
    close(fd);
}

UNSEEN void walk_enter(uint64_t function) {
    if (walk && atomic_load_explicit(&walk->on, memory_order_relaxed)) {
        uint64_t at = atomic_fetch_add(&walk->count, 1);
        if (at < walk->capacity) {
            if (!thread_id) thread_id = (uint64_t)syscall(SYS_gettid);
            uint64_t below = depth && depth <= DEPTH_MAX ? stack[depth - 1] : 0;
            walk->events[at] = (struct event){function, below, thread_id};
        }
    }
    if (depth < DEPTH_MAX) stack[depth] = function;
    depth++;
}

UNSEEN void walk_leave(void) {
    if (depth) depth--;
}

UNSEEN void __cyg_profile_func_enter(void *function, void *call_site) {
    (void)call_site;
    walk_enter((uint64_t)(uintptr_t)function);
}

UNSEEN void __cyg_profile_func_exit(void *function, void *call_site) {
    (void)function;
    (void)call_site;
    walk_leave();
}
