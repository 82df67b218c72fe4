// A disk for tests: preloaded into a broker, kbroker or Apache Kafka, it holds up, delays or fails
// the file operations $TEST_DISK_OPERATIONS ("fdatasync" where it is not set) of files whose path
// has $TEST_DISK_FILES in it. How, the file $TEST_DISK says at each operation, with an argument:
//   hold [WORD]   until it says something else; only where WORD, too, is in the path
//   slow MS       each takes so many milliseconds longer
//   fail          EIO (fdatasync only)
//   anything else: as ever
// Each operation that is held adds a line with its file to $TEST_DISK.held.
//
// What "read" holds or delays was not in the page cache: a read that must not wait (RWF_NOWAIT) says
// EAGAIN, a look (cachestat) finds nothing. What a slow read has brought in is there from then on,
// and sendfile waits for the rest.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define RANGES 4096
#define CACHESTAT 451

struct range {
    ino_t file;
    off_t from, to;
};
static struct range ranges[RANGES];
static int range_next;
static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;

static int is_ours(int fd, const char *operation, char *path, size_t room)
{
    const char *operations = getenv("TEST_DISK_OPERATIONS"), *word = getenv("TEST_DISK_FILES");
    char link[64];
    if (!word || !strstr(operations ? operations : "fdatasync", operation))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, room - 1);
    path[length > 0 ? length : 0] = 0;
    return strstr(path, word) != NULL;
}

static char mode(const char *path, int *milliseconds)
{
    char text[256], *word;
    int fd = open(getenv("TEST_DISK"), O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : syscall(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[length > 0 ? length : 0] = 0;
    text[strcspn(text, "\n")] = 0;
    word = strchr(text, ' ');
    *milliseconds = word ? atoi(word + 1) : 0;
    if (text[0] == 'h' && word && !strstr(path, word + 1))
        return 0;
    return text[0];
}

static void note_held(const char *path)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.held", getenv("TEST_DISK"));
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) {
        dprintf(fd, "%s\n", path);
        close(fd);
    }
}

// Waits as the mode says; 'f' if the operation is to fail.
static char waited(int fd, const char *operation)
{
    char path[4096], now;
    int milliseconds, noted = 0;
    if (!is_ours(fd, operation, path, sizeof path))
        return 0;
    while ((now = mode(path, &milliseconds)) == 'h') {
        if (!noted++)
            note_held(path);
        usleep(1000);
    }
    if (now == 's')
        usleep(milliseconds * 1000);
    return now;
}

static int is_cold(int fd)
{
    char path[4096], now;
    int milliseconds;
    if (!is_ours(fd, "read", path, sizeof path))
        return 0;
    now = mode(path, &milliseconds);
    return now == 'h' || now == 's';
}

static void brought_in(int fd, off_t from, ssize_t length)
{
    struct stat file;
    struct range *last;
    if (length <= 0 || fstat(fd, &file))
        return;
    pthread_mutex_lock(&ranges_lock);
    last = &ranges[(range_next + RANGES - 1) % RANGES];
    if (last->file == file.st_ino && last->to == from)
        last->to += length;
    else {
        ranges[range_next] = (struct range){file.st_ino, from, from + length};
        range_next = (range_next + 1) % RANGES;
    }
    pthread_mutex_unlock(&ranges_lock);
}

static int is_in(int fd, off_t from, size_t length)
{
    struct stat file;
    int found = 0;
    if (fstat(fd, &file))
        return 0;
    pthread_mutex_lock(&ranges_lock);
    for (int at = 0; at < RANGES && !found; at++)
        found = ranges[at].file == file.st_ino && ranges[at].from <= from &&
                from + (off_t)length <= ranges[at].to;
    pthread_mutex_unlock(&ranges_lock);
    return found;
}

int fdatasync(int fd)
{
    if (waited(fd, "fdatasync") == 'f') {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

ssize_t write(int fd, const void *data, size_t length)
{
    waited(fd, "write");
    return syscall(SYS_write, fd, data, length);
}

ssize_t writev(int fd, const struct iovec *vector, int count)
{
    waited(fd, "write");
    return syscall(SYS_writev, fd, vector, count);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t position)
{
    waited(fd, "write");
    return syscall(SYS_pwrite64, fd, data, length, position);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t position)
{
    return pwrite64(fd, data, length, position);
}

ssize_t pwritev64(int fd, const struct iovec *vector, int count, off64_t position)
{
    waited(fd, "write");
    return syscall(SYS_pwritev, fd, vector, count, position, 0);
}

ssize_t pwritev(int fd, const struct iovec *vector, int count, off_t position)
{
    return pwritev64(fd, vector, count, position);
}

ssize_t pread64(int fd, void *data, size_t length, off64_t position)
{
    ssize_t got;
    char how = 0;
    if (!is_in(fd, position, length))
        how = waited(fd, "read");
    got = syscall(SYS_pread64, fd, data, length, position);
    if (how == 's')
        brought_in(fd, position, got);
    return got;
}

ssize_t pread(int fd, void *data, size_t length, off_t position)
{
    return pread64(fd, data, length, position);
}

ssize_t preadv64v2(int fd, const struct iovec *vector, int count, off64_t position, int flags)
{
    size_t length = 0;
    for (int at = 0; at < count; at++)
        length += vector[at].iov_len;
    if (!is_in(fd, position, length)) {
        if (flags & RWF_NOWAIT && is_cold(fd)) {
            errno = EAGAIN;
            return -1;
        }
        waited(fd, "read");
    }
    return syscall(SYS_preadv2, fd, vector, count, position, 0, flags);
}

ssize_t preadv2(int fd, const struct iovec *vector, int count, off_t position, int flags)
{
    return preadv64v2(fd, vector, count, position, flags);
}

ssize_t sendfile64(int out, int in, off64_t *position, size_t length)
{
    if (!position || !is_in(in, *position, length))
        waited(in, "read");
    return syscall(SYS_sendfile, out, in, position, length);
}

ssize_t sendfile(int out, int in, off_t *position, size_t length)
{
    return sendfile64(out, in, position, length);
}

long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int at = 0; at < 6; at++)
        a[at] = va_arg(arguments, long);
    va_end(arguments);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == CACHESTAT) {
        off_t *range = (off_t *)a[1];
        if (!is_in((int)a[0], range[0], (size_t)range[1]) && is_cold((int)a[0])) {
            memset((void *)a[2], 0, 5 * sizeof(long));
            return 0;
        }
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
