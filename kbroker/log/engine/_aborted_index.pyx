# cython: language_level=3
"""The index of aborted transactions of one segment, in Kafka's format.

`.txnindex`: 34 bytes an entry: version 0 (int16), producer id, first offset, offset of the marker,
and the last stable offset after that marker. Entries are in the order of the markers. There is
none for a transaction without data here, and without an entry no file.

An entry is written before the marker: what a crash leaves of it without the marker is dropped by
the recovery, which writes the index of each segment that it reads anew. The file stays open as long
as its segment, so that a reader needs neither its name nor the lock. No GIL.
"""

from libc cimport errno as number_of
from libc.errno cimport EINTR, EIO, ENOENT, ENOMEM, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from kbroker.core._atomics cimport kb_store_int
from kbroker.log.engine._file_operations cimport files, iovec
from kbroker.protocol._cursor cimport get_i16, get_i64, kb_put_u16, kb_put_u64

cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDWR
        O_CREAT
        O_TRUNC
        O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    VERSION = 0                   # of an entry
    READ_AT_ONCE = 64             # entries


cdef int aborted_open(AbortedIndex* index, const char* path) noexcept nogil:
    cdef int64_t size_bytes
    index.count = 0
    index.unsound = 0
    index.places_busy = 0
    index.places = NULL
    index.fd = files.open(path, O_RDWR | O_CLOEXEC, 0)
    if index.fd < 0:
        return 0 if errno == ENOENT else errno
    size_bytes = files.size(index.fd)
    if size_bytes < 0:
        return errno
    index.unsound = size_bytes % ABORTED_ENTRY_BYTES != 0
    index.count = <int>(size_bytes / ABORTED_ENTRY_BYTES)
    return 0


cdef void aborted_close(AbortedIndex* index) noexcept nogil:
    if index.fd >= 0:
        close(index.fd)
    index.fd = -1
    free(index.places)
    index.places = NULL


cdef int shorten(const AbortedIndex* index, int32_t count) noexcept nogil:
    while files.ftruncate(index.fd, <int64_t>count * ABORTED_ENTRY_BYTES) < 0:
        if errno != EINTR:
            return errno
    return 0


cdef void encode(const AbortedEntry* entry, uint8_t* at) noexcept nogil:
    kb_put_u16(at, VERSION)
    kb_put_u64(at + 2, <uint64_t>entry.producer_id)
    kb_put_u64(at + 10, <uint64_t>entry.first_offset)
    kb_put_u64(at + 18, <uint64_t>entry.last_offset)
    kb_put_u64(at + 26, <uint64_t>entry.last_stable)


cdef int aborted_write(
    AbortedIndex* index, const char* path, const AbortedEntry* entries, int32_t count
) noexcept nogil:
    cdef int64_t size_bytes = <int64_t>count * ABORTED_ENTRY_BYTES
    cdef int64_t written
    cdef int32_t at
    cdef int status = 0
    cdef iovec vector
    cdef uint8_t* data = <uint8_t*>malloc(<size_t>size_bytes + 1)
    if data == NULL:
        return ENOMEM
    for at in range(count):
        encode(&entries[at], data + at * ABORTED_ENTRY_BYTES)
    if index.fd < 0:
        index.fd = files.open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        status = errno if index.fd < 0 else 0
    vector.iov_base = data
    vector.iov_len = <size_t>size_bytes
    while status == 0:
        written = files.pwritev(
            index.fd, &vector, 1, <int64_t>index.count * ABORTED_ENTRY_BYTES)
        if written == size_bytes:
            break
        if written >= 0 or errno != EINTR:
            status = EIO if written >= 0 else errno
            shorten(index, index.count)
    free(data)
    return status


cdef void aborted_publish(AbortedIndex* index, int32_t count) noexcept nogil:
    kb_store_int(&index.count, index.count + count)


cdef int aborted_take_back(const AbortedIndex* index) noexcept nogil:
    return shorten(index, index.count) if index.fd >= 0 else 0


cdef int32_t read_bytes(
    const AbortedIndex* index, int32_t at, uint8_t* data, int32_t room, int must_not_wait
) noexcept nogil:
    # As aborted_read(). A read that must not wait ends before the first page that is not in memory,
    # often within an entry: the rest of a first entry is asked for again, which tells why.
    cdef int64_t (*pread)(int, void*, size_t, int64_t) noexcept nogil
    cdef int64_t wanted = <int64_t>min(room, <int32_t>READ_AT_ONCE) * ABORTED_ENTRY_BYTES
    cdef int64_t done = 0, got
    pread = files.pread_now if must_not_wait else files.pread
    while done < ABORTED_ENTRY_BYTES:
        got = pread(index.fd, data + done, <size_t>(wanted - done),
                    <int64_t>at * ABORTED_ENTRY_BYTES + done)
        if got == 0:
            break
        if got > 0:
            done += got
        elif errno != EINTR:
            return -1
    return <int32_t>(done / ABORTED_ENTRY_BYTES)


cdef void decode(const uint8_t* at, AbortedEntry* entry) noexcept nogil:
    entry.producer_id = get_i64(at + 2)
    entry.first_offset = get_i64(at + 10)
    entry.last_offset = get_i64(at + 18)
    entry.last_stable = get_i64(at + 26)


cdef int is_next(const uint8_t* at, int64_t least, AbortedEntry* entry) noexcept nogil:
    # Whether `at` has the entry of a marker at or above the offset `least`.
    decode(at, entry)
    return (get_i16(at) == VERSION and entry.producer_id >= 0 and entry.last_offset >= least
            and 0 <= entry.first_offset < entry.last_offset
            and 0 <= entry.last_stable <= entry.last_offset + 1)


cdef int32_t aborted_read(
    const AbortedIndex* index, int32_t at, AbortedEntry* entries, int32_t room, int must_not_wait
) noexcept nogil:
    cdef uint8_t data[READ_AT_ONCE * ABORTED_ENTRY_BYTES]
    cdef int32_t got = read_bytes(index, at, data, room, must_not_wait), i
    for i in range(got):
        if not is_next(data + i * ABORTED_ENTRY_BYTES, 0, &entries[i]):
            number_of.errno = EIO
            return -1
    return got


cdef int aborted_check(
    AbortedIndex* index, int64_t base_offset, int64_t* last_marker
) noexcept nogil:
    cdef uint8_t data[READ_AT_ONCE * ABORTED_ENTRY_BYTES]
    cdef AbortedEntry entry
    cdef int64_t least = base_offset
    cdef int32_t at = 0, got, i
    last_marker[0] = -1
    while at < index.count and not index.unsound:
        got = read_bytes(index, at, data, index.count - at, 0)
        if got <= 0:
            return errno if got < 0 else EIO
        for i in range(got):
            index.unsound |= not is_next(data + i * ABORTED_ENTRY_BYTES, least, &entry)
            last_marker[0] = entry.last_offset
            least = entry.last_offset + 1
        at += got
    return 0


cdef int aborted_cut(AbortedIndex* index, const char* path, int64_t end_offset) noexcept nogil:
    cdef AbortedEntry entry
    cdef int32_t stay = index.count
    cdef int32_t got
    cdef int status
    while stay > 0:
        got = aborted_read(index, stay - 1, &entry, 1, 0)
        if got <= 0:
            return errno if got < 0 else EIO
        if entry.last_offset < end_offset:
            break
        stay -= 1
    if stay == index.count or index.fd < 0:
        return 0
    kb_store_int(&index.count, stay)
    status = shorten(index, stay)
    if status == 0 and stay == 0 and files.unlink(path) < 0 and errno != ENOENT:
        status = errno
    return status


cdef int aborted_spoil(AbortedIndex* index) noexcept nogil:
    index.count = 0
    index.unsound = 0
    if index.fd < 0:
        return 0
    while files.ftruncate(index.fd, 1) < 0:    # no whole entry
        if errno != EINTR:
            return errno
    return 0


cdef int aborted_sync(const AbortedIndex* index) noexcept nogil:
    if index.fd >= 0 and files.fdatasync(index.fd) < 0:
        return errno
    return 0


cdef int aborted_reset(AbortedIndex* index, const char* path) noexcept nogil:
    aborted_close(index)
    index.count = 0
    index.unsound = 0
    if files.unlink(path) < 0 and errno != ENOENT:
        return errno
    return 0
