# cython: language_level=3
"""One mark for each data directory: a write to one of its logs has been under way for too long.

A write that begins notes in the mark of its directory from which moment on it is late, and its end
takes the note back. A request that was set aside for a slow log of the directory, and has no turn,
is looked at again where no write is late (`net/_aside`). Whether a request is set aside is for each
log to say, by its own writes (`log_is_slow`): others of the directory may answer.

There is room for one write. One that begins beside another is not noted; if it is the one that
hangs, the next write of the directory is noted, and hangs as well. Two writes that begin in the
same moment may both note theirs: the later note stays, and its own writer takes it back. So a note
never outlives its write.

Marks are found by the path of the data directory when a log is opened or moved. There are as many
as data directories, so none is freed, and who has one needs no lock.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport strdup, strlen, strncmp

from kbroker.core._sync cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock)

cdef pthread_mutex_t mutex        # over the list; nothing else is locked under it
cdef DirectoryMark* marks = NULL

pthread_mutex_init(&mutex, NULL)


cdef size_t _parent_chars(const char* path) noexcept nogil:
    cdef size_t length = strlen(path)
    while length > 0 and path[length - 1] == c'/':
        length -= 1
    while length > 0 and path[length - 1] != c'/':
        length -= 1
    return length


cdef DirectoryMark* _find_locked(const char* path, size_t length) noexcept nogil:
    cdef DirectoryMark* mark = marks
    while mark != NULL:
        if strlen(mark.path) == length and strncmp(mark.path, path, length) == 0:
            return mark
        mark = mark.next
    return NULL


cdef DirectoryMark* _add_locked(const char* path, size_t length) noexcept nogil:
    global marks
    cdef DirectoryMark* mark = <DirectoryMark*>calloc(1, sizeof(DirectoryMark))
    if mark == NULL:
        return NULL
    mark.path = strdup(path)
    if mark.path == NULL:
        free(mark)
        return NULL
    mark.path[length] = 0
    mark.next = marks
    marks = mark
    return mark


cdef DirectoryMark* directory_mark_of(const char* log_directory) noexcept nogil:
    cdef size_t length = _parent_chars(log_directory)
    cdef DirectoryMark* mark
    pthread_mutex_lock(&mutex)
    mark = _find_locked(log_directory, length)
    if mark == NULL:
        mark = _add_locked(log_directory, length)
    pthread_mutex_unlock(&mutex)
    return mark
