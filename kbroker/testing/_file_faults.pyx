# cython: language_level=3
"""File operations that fail on purpose: a table of the log's system calls that asks rules first.

`install` puts functions into `kbroker.log.engine._file_operations.files` and, for files that are
sent, `kbroker.net._send.sends`. They note each operation and look for a rule that names it;
`remove` puts the system's own back. A rule fits by operation and by a part of the path, skips so
many that fit, then makes so many fail: with an errno, after a few bytes, or late; or it lets them
hang until `let_go`. `file_faults.py` is the face of it; Python's operations come in through `ask`.
One who watches is called before each, with the GIL: for a test whose log has one thread.

Any thread, with or without the GIL: one mutex over rules and notes, a leaf. Installing is for a
time when no other thread of the log is inside a call. A test's process only: the broker never
imports it.
"""

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport strncpy, strstr

from kbroker.core._sync cimport (
    pthread_cond_broadcast, pthread_cond_init, pthread_cond_t, pthread_cond_wait,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock)
from kbroker.log.engine._file_operations cimport FileOperations, files, iovec
from kbroker.net._send cimport SendOperations, sends

import os

cdef extern from "<sys/mman.h>" nogil:
    void* MAP_FAILED

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        int64_t tv_nsec
    int nanosleep(const timespec* wanted, timespec* left)

cdef extern from "<unistd.h>" nogil:
    int64_t readlink(const char* path, char* buffer, size_t size)

cdef enum:
    RULES_MAX = 64
    NOTES_MAX = 1 << 20
    PATH_CHARS = 256              # the end of a longer path is cut off
    VECTORS_MAX = 1024

cdef enum Operation:
    OPEN, SIZE, READ, WRITE, TRUNCATE, ALLOCATE, MAP, UNLINK, SYNC, RENAME, MKDIR, LIST, OPEN_NOW
    READ_NOW, SEND

OPERATIONS = (
    "open", "size", "read", "write", "truncate", "allocate", "map", "unlink", "sync", "rename",
    "mkdir", "list", "open_now", "read_now", "send")


cdef struct Rule:
    int64_t operations            # a bit for each
    char path_part[PATH_CHARS]
    int64_t skip                  # of those that fit; then
    int64_t times                 # so many fail
    int error                     # 0: none
    int64_t bytes_max             # what a read or a write moves; -1: all
    int64_t delay_us
    int hangs


cdef struct Note:
    int operation
    int failed
    int64_t length                # of a read, write, truncation, allocation, map or send; or 0
    char path[PATH_CHARS]


cdef struct Verdict:
    int error
    int64_t bytes_max             # -1: all


cdef object watcher = None        # called with the name of an operation and its path
cdef object watcher_failed = None    # what it raised first
cdef int is_watched = 0

cdef FileOperations system
cdef SendOperations system_sends
cdef pthread_mutex_t mutex
cdef Rule rules[RULES_MAX]
cdef int32_t rule_count = 0
cdef Note* notes = NULL
cdef int64_t note_count = 0, note_max = 0
cdef int notes_nothing = 0
cdef pthread_cond_t goes_on
cdef int64_t times_let_go = 0
cdef int64_t hanging = 0          # operations, now

pthread_mutex_init(&mutex, NULL)
pthread_cond_init(&goes_on, NULL)
system = files
system_sends = sends


cdef void note_locked(
    Operation operation, const char* path, int64_t length, int failed
) noexcept nogil:
    global notes, note_count, note_max
    cdef Note* larger
    if notes_nothing:
        return
    if note_count == note_max:
        if note_max >= NOTES_MAX:
            return
        larger = <Note*>realloc(notes, <size_t>(2 * note_max + 256) * sizeof(Note))
        if larger == NULL:
            return
        notes = larger
        note_max = 2 * note_max + 256
    notes[note_count].operation = operation
    notes[note_count].failed = failed
    notes[note_count].length = length
    strncpy(notes[note_count].path, path, PATH_CHARS - 1)
    notes[note_count].path[PATH_CHARS - 1] = 0
    note_count += 1


cdef void notify_watcher(Operation operation, const char* path) noexcept:
    global watcher_failed
    try:
        watcher(OPERATIONS[<int>operation], os.fsdecode(<bytes>path))
    except BaseException as error:
        if watcher_failed is None:
            watcher_failed = error


cdef void hang_locked() noexcept nogil:
    global hanging
    cdef int64_t before = times_let_go
    hanging += 1
    while times_let_go == before:
        pthread_cond_wait(&goes_on, &mutex)
    hanging -= 1


cdef Verdict decide(Operation operation, const char* path, int64_t length) noexcept nogil:
    cdef Verdict verdict
    cdef Rule* rule
    cdef timespec wait
    cdef int64_t delay_us = 0
    cdef int32_t at
    verdict.error = 0
    verdict.bytes_max = -1
    if is_watched:
        with gil:
            notify_watcher(operation, path)
    pthread_mutex_lock(&mutex)
    for at in range(rule_count):
        rule = &rules[at]
        if not rule.operations >> <int>operation & 1 or strstr(path, rule.path_part) == NULL:
            continue
        if rule.skip > 0:
            rule.skip -= 1
            continue
        if rule.times == 0:
            continue
        rule.times -= 1
        verdict.error = rule.error
        verdict.bytes_max = rule.bytes_max
        delay_us = rule.delay_us
        if rule.hangs:
            hang_locked()         # the rules may be others after it
        break
    note_locked(operation, path, length, verdict.error != 0 or verdict.bytes_max >= 0)
    pthread_mutex_unlock(&mutex)
    if delay_us:
        wait.tv_sec = delay_us / 1_000_000
        wait.tv_nsec = delay_us % 1_000_000 * 1000
        nanosleep(&wait, NULL)
    return verdict


cdef Verdict decide_of(Operation operation, int fd, int64_t length) noexcept nogil:
    cdef char link[64]
    cdef char path[PATH_CHARS]
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd)
    cdef int64_t chars = readlink(link, path, PATH_CHARS - 1)
    path[chars if chars > 0 else 0] = 0
    return decide(operation, path, length)


cdef int outcome(Verdict verdict) noexcept nogil:
    if verdict.error == 0:
        return 0
    (&errno)[0] = verdict.error
    return -1


# --- The table ------------------------------------------------------------------------------------

cdef int open_file(const char* path, int flags, int mode) noexcept nogil:
    return -1 if outcome(decide(OPEN, path, 0)) else system.open(path, flags, mode)


cdef int open_file_now(const char* path, int flags) noexcept nogil:
    return -1 if outcome(decide(OPEN_NOW, path, 0)) else system.open_now(path, flags)


cdef int64_t size_of(int fd) noexcept nogil:
    return -1 if outcome(decide_of(SIZE, fd, 0)) else system.size(fd)


cdef int64_t read_at(int fd, void* buffer, size_t length, int64_t position) noexcept nogil:
    cdef Verdict verdict = decide_of(READ, fd, <int64_t>length)
    if outcome(verdict):
        return -1
    if 0 <= verdict.bytes_max < <int64_t>length:
        length = <size_t>verdict.bytes_max
    return system.pread(fd, buffer, length, position)


cdef int64_t read_at_now(int fd, void* buffer, size_t length, int64_t position) noexcept nogil:
    cdef Verdict verdict = decide_of(READ_NOW, fd, <int64_t>length)
    if outcome(verdict):
        return -1
    if 0 <= verdict.bytes_max < <int64_t>length:
        length = <size_t>verdict.bytes_max
    return system.pread_now(fd, buffer, length, position)


cdef int64_t write_at(int fd, const iovec* vectors, int count, int64_t position) noexcept nogil:
    cdef iovec some[VECTORS_MAX]
    cdef Verdict verdict
    cdef int64_t left, length = 0
    cdef int at, taken = 0
    for at in range(count):
        length += <int64_t>vectors[at].iov_len
    verdict = decide_of(WRITE, fd, length)
    left = verdict.bytes_max
    if outcome(verdict):
        return -1
    if left < 0:
        return system.pwritev(fd, vectors, count, position)
    for at in range(count):
        if left == 0:
            break
        some[at] = vectors[at]
        if <int64_t>some[at].iov_len > left:
            some[at].iov_len = <size_t>left
        left -= <int64_t>some[at].iov_len
        taken += 1
    return system.pwritev(fd, some, taken, position)


cdef int truncate(int fd, int64_t length) noexcept nogil:
    return -1 if outcome(decide_of(TRUNCATE, fd, length)) else system.ftruncate(fd, length)


cdef int allocate(int fd, int64_t offset, int64_t length) noexcept nogil:
    cdef Verdict verdict = decide_of(ALLOCATE, fd, length)
    return verdict.error if verdict.error else system.allocate(fd, offset, length)


cdef void* map_file(
    void* address, size_t length, int protection, int flags, int fd, int64_t offset
) noexcept nogil:
    if outcome(decide_of(MAP, fd, <int64_t>length)):
        return MAP_FAILED
    return system.mmap(address, length, protection, flags, fd, offset)


cdef int unlink_file(const char* path) noexcept nogil:
    return -1 if outcome(decide(UNLINK, path, 0)) else system.unlink(path)


cdef int sync_data(int fd) noexcept nogil:
    return -1 if outcome(decide_of(SYNC, fd, 0)) else system.fdatasync(fd)


cdef int sync_all(int fd) noexcept nogil:
    return -1 if outcome(decide_of(SYNC, fd, 0)) else system.fsync(fd)


cdef int sync_volume(int fd) noexcept nogil:
    return -1 if outcome(decide_of(SYNC, fd, 0)) else system.syncfs(fd)


cdef int sync_range(int fd, int64_t offset, int64_t length, unsigned int flags) noexcept nogil:
    if outcome(decide_of(SYNC, fd, 0)):
        return -1
    return system.sync_file_range(fd, offset, length, flags)


cdef ssize_t send_file(int fd, int file, int64_t position, size_t length) noexcept nogil:
    cdef Verdict verdict = decide_of(SEND, file, <int64_t>length)
    if outcome(verdict):
        return -1
    if 0 <= verdict.bytes_max < <int64_t>length:
        length = <size_t>verdict.bytes_max
    return system_sends.send_file(fd, file, position, length)


# --- From Python ----------------------------------------------------------------------------------

def install() -> None:
    """Every file operation of the log is noted and asks the rules from here on."""
    files.open = open_file
    files.open_now = open_file_now
    files.size = size_of
    files.pread = read_at
    files.pread_now = read_at_now
    files.pwritev = write_at
    files.ftruncate = truncate
    files.allocate = allocate
    files.mmap = map_file
    files.unlink = unlink_file
    files.fdatasync = sync_data
    files.fsync = sync_all
    files.syncfs = sync_volume
    files.sync_file_range = sync_range
    sends.send_file = send_file


def watch(object called) -> None:
    """`called(operation, path)` before each operation from now on, until `remove`."""
    global watcher, is_watched, watcher_failed
    watcher = called
    watcher_failed = None
    is_watched = called is not None


def read_now(int fd, int64_t length, int64_t position) -> bytes:
    """As the log reads what it does not wait for."""
    cdef bytearray room = bytearray(length)
    cdef int64_t got = files.pread_now(fd, <char*>room, <size_t>length, position)
    if got < 0:
        raise OSError(errno, os.strerror(errno))
    return bytes(room[:got])


def hang_only() -> None:
    """Nothing is noted from here on: for a process that goes on for long."""
    global notes_nothing
    notes_nothing = 1


def let_go() -> int:
    """What hangs goes on, and nothing hangs any more; how many operations did."""
    global times_let_go, rule_count
    cdef int32_t at, kept = 0
    pthread_mutex_lock(&mutex)
    for at in range(rule_count):
        if not rules[at].hangs:
            rules[kept] = rules[at]
            kept += 1
    rule_count = kept
    times_let_go += 1
    count = hanging
    pthread_cond_broadcast(&goes_on)
    pthread_mutex_unlock(&mutex)
    return count


def hung() -> int:
    """How many operations hang now."""
    pthread_mutex_lock(&mutex)
    count = hanging
    pthread_mutex_unlock(&mutex)
    return count


def remove() -> object:
    """The system's own calls again; no rules and no notes. The watcher's error, or None."""
    global notes, note_count, note_max, rule_count, notes_nothing
    (&files)[0] = system
    (&sends)[0] = system_sends
    let_go()
    notes_nothing = 0
    failed = watcher_failed
    watch(None)
    pthread_mutex_lock(&mutex)
    free(notes)
    notes = NULL
    note_count = 0
    note_max = 0
    rule_count = 0
    pthread_mutex_unlock(&mutex)
    return failed


def add_rule(
    operations, path_part, int64_t skip, int64_t times, int error, int64_t bytes_max,
    int64_t delay_us, bint hangs=False,
) -> None:
    """See `file_faults.Fault`. No operations: all of the log."""
    global rule_count
    cdef Rule rule
    cdef bytes part = os.fsencode(path_part)
    if len(part) >= PATH_CHARS or rule_count == RULES_MAX:
        raise ValueError("a longer path, or more rules, than there is room for")
    rule.operations = 0
    for name in operations or OPERATIONS[:SEND]:
        rule.operations |= <int64_t>1 << <int>OPERATIONS.index(name)
    strncpy(rule.path_part, part, PATH_CHARS)
    rule.skip = skip
    rule.times = times
    rule.error = error
    rule.bytes_max = bytes_max
    rule.delay_us = delay_us
    rule.hangs = hangs
    pthread_mutex_lock(&mutex)
    rules[rule_count] = rule
    rule_count += 1
    pthread_mutex_unlock(&mutex)


def ask(str operation, str path):
    """The same for an operation of Python: raises, or how many bytes a write takes (None: all)."""
    cdef bytes name = os.fsencode(path)
    cdef const char* text = name
    cdef Operation number = <Operation><int>OPERATIONS.index(operation)
    cdef Verdict verdict
    with nogil:
        verdict = decide(number, text, 0)
    if verdict.error:
        raise OSError(verdict.error, os.strerror(verdict.error), path)
    return verdict.bytes_max if verdict.bytes_max >= 0 else None


def noted() -> list:
    """(operation, path, whether a rule touched it, length) of every operation so far."""
    pthread_mutex_lock(&mutex)
    try:
        return [
            (OPERATIONS[notes[at].operation], os.fsdecode(<bytes>notes[at].path),
             bool(notes[at].failed), notes[at].length)
            for at in range(note_count)
        ]
    finally:
        pthread_mutex_unlock(&mutex)
