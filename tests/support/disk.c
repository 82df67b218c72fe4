// A disk for tests: preloaded into a broker, it holds up or fails the fdatasync of files whose path
// has $TEST_DISK_FILES in it, as the file $TEST_DISK says: "hold", "fail", anything else: as ever.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char mode(void)
{
    char first = 0;
    int fd = open(getenv("TEST_DISK"), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &first, 1) < 1)
            first = 0;
        close(fd);
    }
    return first;
}

int fdatasync(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (strstr(path, getenv("TEST_DISK_FILES"))) {
        while (mode() == 'h')
            usleep(2000);
        if (mode() == 'f') {
            errno = EIO;
            return -1;
        }
    }
    return (int)syscall(SYS_fdatasync, fd);
}
