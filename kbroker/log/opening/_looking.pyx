# cython: language_level=3
"""One look at a log's directory: which files there are, how large, and what the small ones say.

A start opens tens of thousands of logs, and asks of each one's directory for its segments, for the
snapshots of producers, for the topic's id and for leader epochs: four times what one pass tells.
Called by `file_operations.look`. No GIL while the disk is asked.
"""

from libc cimport errno as number_of
from libc.errno cimport EINTR, ENOENT, errno
from libc.stdlib cimport free, realloc
from libc.string cimport strcmp, strdup, strstr

import os

from kbroker.log.engine._results import LogFiles

cdef extern from "Python.h":
    object PyUnicode_DecodeFSDefault(const char* text)

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        unsigned char d_type
        char* d_name
    enum:
        DT_REG
        DT_UNKNOWN
    DIR* fdopendir(int fd)
    dirent* readdir(DIR* directory)
    int closedir(DIR* directory)

cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDONLY
        O_DIRECTORY
        O_CLOEXEC
        AT_SYMLINK_NOFOLLOW
    int c_open "open"(const char* path, int flags, ...)
    int openat(int directory, const char* path, int flags, ...)

cdef extern from "<sys/stat.h>" nogil:
    struct stat_of "stat":
        unsigned int st_mode
        long long st_size
    int fstatat(int directory, const char* path, stat_of* found, int flags)
    int S_ISREG(unsigned int mode)

cdef extern from "<unistd.h>" nogil:
    int close(int fd)
    Py_ssize_t read(int fd, void* buffer, size_t length)

cdef enum:
    SMALL_BYTES = 16384           # of a file that is read here


cdef struct Entry:
    char* name
    long long size_bytes          # of a .log, else 0; -1: it is no file


cdef struct Look:
    Entry* entries
    Py_ssize_t count
    Py_ssize_t room
    char metadata[SMALL_BYTES]
    char epochs[SMALL_BYTES]
    Py_ssize_t metadata_bytes     # -1: there is none; SMALL_BYTES: more than that
    Py_ssize_t epochs_bytes


cdef int note(Look* look, int fd, dirent* entry) noexcept nogil:
    # 0 or an errno. Of files that are asked for their size alone the disk is asked more.
    cdef stat_of found
    cdef Entry* entries
    cdef int is_file = entry.d_type == DT_REG
    found.st_size = 0
    if entry.d_type == DT_UNKNOWN or is_file and strstr(entry.d_name, b".log") != NULL:
        if fstatat(fd, entry.d_name, &found, AT_SYMLINK_NOFOLLOW) != 0:
            return 0 if errno == ENOENT else errno
        is_file = S_ISREG(found.st_mode)
    if look.count == look.room:
        look.room = 2 * look.room + 16
        entries = <Entry*>realloc(look.entries, <size_t>look.room * sizeof(Entry))
        if entries == NULL:
            return errno
        look.entries = entries
    look.entries[look.count].name = strdup(entry.d_name)
    if look.entries[look.count].name == NULL:
        return errno
    look.entries[look.count].size_bytes = found.st_size if is_file else -1
    look.count += 1
    return 0


cdef int read_small(int directory, const char* name, char* into, Py_ssize_t* size) noexcept nogil:
    cdef Py_ssize_t got = 1
    cdef int status = 0
    cdef int fd = openat(directory, name, O_RDONLY | O_CLOEXEC)
    if fd < 0:
        return errno
    size[0] = 0
    while got > 0 and size[0] < SMALL_BYTES:
        got = read(fd, into + size[0], <size_t>(SMALL_BYTES - size[0]))
        if got < 0 and errno == EINTR:
            got = 1
        elif got < 0:
            status = errno
        else:
            size[0] += got
    close(fd)
    return status


cdef int look_into(
    const char* path, Look* look, const char* metadata, const char* epochs
) noexcept nogil:
    # 0 or an errno.
    cdef int fd = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    cdef int status = 0
    cdef DIR* directory
    cdef dirent* entry
    if fd < 0:
        return errno
    directory = fdopendir(fd)
    if directory == NULL:
        status = errno
        close(fd)
        return status
    while status == 0:
        number_of.errno = 0       # readdir answers NULL at the end, too
        entry = readdir(directory)
        if entry == NULL:
            status = errno
            break
        if strcmp(entry.d_name, b".") == 0 or strcmp(entry.d_name, b"..") == 0:
            continue
        status = note(look, fd, entry)
        if status == 0 and strcmp(entry.d_name, metadata) == 0:
            status = read_small(fd, metadata, look.metadata, &look.metadata_bytes)
        elif status == 0 and strcmp(entry.d_name, epochs) == 0:
            status = read_small(fd, epochs, look.epochs, &look.epochs_bytes)
    closedir(directory)
    return status


def look(str path not None, str metadata not None, str epochs not None) -> LogFiles | None:
    """The directory at a path, with the content of the files of these two names; None where there
    is nothing. A file of 16 KB or more is the caller's to read. OSError."""
    cdef Look found
    cdef bytes at = os.fsencode(path), metadata_name = os.fsencode(metadata)
    cdef bytes epochs_name = os.fsencode(epochs)
    cdef const char* c_at = at
    cdef const char* c_metadata = metadata_name
    cdef const char* c_epochs = epochs_name
    cdef Py_ssize_t number
    cdef int status
    found.entries = NULL
    found.count = 0
    found.room = 0
    found.metadata_bytes = -1
    found.epochs_bytes = -1
    with nogil:
        status = look_into(c_at, &found, c_metadata, c_epochs)
    try:
        if status == ENOENT and found.count == 0:
            return None
        if status != 0:
            raise OSError(status, os.strerror(status), path)
        return LogFiles(
            {
                PyUnicode_DecodeFSDefault(found.entries[number].name):
                    found.entries[number].size_bytes
                for number in range(found.count)
            },
            _small(found.metadata, found.metadata_bytes),
            _small(found.epochs, found.epochs_bytes),
        )
    finally:
        for number in range(found.count):
            free(found.entries[number].name)
        free(found.entries)


cdef object _small(const char* data, Py_ssize_t size):
    return data[:size] if 0 <= size < SMALL_BYTES else None
