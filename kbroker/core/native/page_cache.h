/* What of a file is in the page cache. See cachestat(2), mincore(2), openat2(2), preadv2(2). */
#ifndef KBROKER_PAGE_CACHE_H
#define KBROKER_PAGE_CACHE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* Linux 6.5; the same number everywhere */
#endif

#ifndef SYS_openat2
#define SYS_openat2 437 /* Linux 5.6 */
#endif

enum { KB_RESOLVE_CACHED = 0x20 }; /* Linux 5.12 */

enum { KB_PAGE_BYTES = 4096, KB_PAGES_MAX = 4096 };

/* An open for reading that does not wait for the disk: -1 with EAGAIN where it would, where nobody
 * can say (an older kernel, a sandbox), and for whatever else an open that may wait can tell. */
static inline int kb_open_now(const char *path, int flags) {
    struct { uint64_t flags, mode, resolve; } how = {(uint64_t)flags, 0, KB_RESOLVE_CACHED};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd < 0) errno = EAGAIN;
    return fd;
}

/* Before Linux 6.5, or where cachestat is not allowed; of 16 MB at most. */
static inline int kb_is_mapped_in(int fd, int64_t from, int64_t pages) {
    unsigned char in[KB_PAGES_MAX];
    int64_t at;
    int status;
    void *map;
    if (pages > KB_PAGES_MAX) pages = KB_PAGES_MAX;
    map = mmap(NULL, (size_t)(pages * KB_PAGE_BYTES), PROT_READ, MAP_SHARED, fd, from);
    if (map == MAP_FAILED) return 0;
    status = mincore(map, (size_t)(pages * KB_PAGE_BYTES), in);
    munmap(map, (size_t)(pages * KB_PAGE_BYTES));
    for (at = 0; status == 0 && at < pages; at++)
        if (!(in[at] & 1)) status = -1;
    return status == 0;
}

/* Whether all of a range is there, which must lie within the file. */
static inline int kb_in_page_cache(int fd, int64_t position, int64_t length) {
    uint64_t range[2] = {(uint64_t)position, (uint64_t)length};
    uint64_t found[5]; /* cached, dirty, in writeback, evicted, evicted lately */
    int64_t page = sysconf(_SC_PAGESIZE);
    int64_t first = position / page, last = (position + length - 1) / page;
    if (length <= 0) return 1;
    memset(found, 0, sizeof(found));
    if (syscall(SYS_cachestat, fd, range, found, 0) == 0)
        return (int64_t)found[0] >= last - first + 1;
    first = position / KB_PAGE_BYTES;
    last = (position + length - 1) / KB_PAGE_BYTES;
    return page == KB_PAGE_BYTES && kb_is_mapped_in(fd, first * KB_PAGE_BYTES, last - first + 1);
}

/* Some file systems (tmpfs, network ones) and sandboxes do not have RWF_NOWAIT. */
static inline int kb_cannot_say(void) {
    return errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL;
}

/* A pread, within the file, that does not wait for the disk: -1 with EAGAIN where it would. Where
 * the read itself cannot say, the page cache is asked before. */
static inline int64_t kb_pread_now(int fd, void *data, size_t length, int64_t position) {
    struct iovec vector = {data, length};
    int64_t got = preadv2(fd, &vector, 1, position, RWF_NOWAIT);
    if (got >= 0 || !kb_cannot_say()) return got;
    if (kb_in_page_cache(fd, position, (int64_t)length)) return pread(fd, data, length, position);
    errno = EAGAIN;
    return -1;
}

/* The same of bytes that were there a moment ago: where the read cannot say, they still are. */
static inline int64_t kb_pread_warm(int fd, void *data, size_t length, int64_t position) {
    struct iovec vector = {data, length};
    int64_t got = preadv2(fd, &vector, 1, position, RWF_NOWAIT);
    if (got >= 0 || !kb_cannot_say()) return got;
    return pread(fd, data, length, position);
}

#endif
