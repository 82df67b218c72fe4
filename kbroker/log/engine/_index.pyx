# cython: language_level=3
"""Sparse indexes of a segment, in Kafka's format.

`.index`: 8 bytes an entry, the last offset of a batch relative to the segment's base and the
position at which that batch starts. `.timeindex`: 12 bytes an entry, the largest timestamp so far
and the relative last offset of the batch that brought it. Both rise strictly; both get an entry
once more than `index.interval.bytes` have been appended since the one before. A lookup takes the
largest entry at or below the target; the log is scanned from there.

Where a segment is appended to, the files are large and sparse, cut to their entries at a roll or a
clean close; a crash leaves them long, with zeros after the last entry, which is why recovery writes
them again.

There is no checksum. Entries are written through a map, from the first append on. Blocks are
allocated before: on a full disk an append then gets an error where a plain store would end the
process by SIGBUS. All others are read by pread, entry by entry: a map of a file that was cut, or of
a page that the disk cannot read, would end the process. A file that cannot be read counts as no
index.

Called with the partition's lock held; a look alone reads a file without it (`_index_look.pyx`).
No GIL.
"""

from libc.errno cimport EAGAIN, EFBIG, EINTR, EIO, ENODEV, ENOENT, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker.core._atomics cimport kb_load_ptr, kb_store_ptr
from kbroker.core._require cimport OF_PARTITION, require_of
from kbroker.log.engine._file_operations cimport files
from kbroker.protocol._cursor cimport get_i32, get_i64, kb_put_u32, kb_put_u64

cdef extern from "<sys/mman.h>" nogil:
    enum:
        PROT_READ
        PROT_WRITE
        MAP_SHARED
        MADV_RANDOM
    void* MAP_FAILED
    int munmap(void* address, size_t length)
    int madvise(void* address, size_t length, int advice)

cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDWR
        O_RDONLY
        O_CREAT
        O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    ALLOCATE_FIRST_BYTES = 4096           # a page with the first append: a small one needs no more
    ALLOCATE_NEXT_BYTES = 64 * 1024       # about 32 MB of log at the default interval


cdef struct IndexReader:
    const Index* index
    const uint8_t* map            # or NULL; then
    int fd                        # of its file; -1: there is nothing to read
    int64_t (*pread)(int, void*, size_t, int64_t) noexcept nogil
    uint8_t entry[TIME_ENTRY_BYTES]       # that was read last


cdef int allocate(Index* index, int fd, int64_t wanted_bytes) noexcept nogil:
    cdef int status
    if wanted_bytes > index.map_bytes:
        wanted_bytes = index.map_bytes
    if wanted_bytes <= index.allocated_bytes:
        return 0
    status = files.allocate(fd, index.allocated_bytes, wanted_bytes - index.allocated_bytes)
    if status != 0 and status != EOPNOTSUPP and status != ENOSYS and status != ENODEV:
        return status
    index.allocated_bytes = wanted_bytes
    return 0


cdef int index_open_writable(
    Index* index, const char* path, int64_t capacity_bytes
) noexcept nogil:
    cdef int64_t size_bytes = capacity_bytes - capacity_bytes % index.entry_bytes
    cdef int64_t kept_bytes = <int64_t>index.entries * index.entry_bytes
    cdef int status = 0
    cdef void* map
    # Whatever the setting, what is there is kept, with room for more.
    if size_bytes < kept_bytes + index.entry_bytes:
        size_bytes = kept_bytes + index.entry_bytes
    cdef int fd = files.open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o644)
    if fd < 0:
        return errno              # and what a try before has made of it is still known: it is cut
    index_close(index)
    # Cut first: bytes after the entries (a crash's zeros, another segment's) must read as 0.
    if files.ftruncate(fd, kept_bytes) < 0 or files.ftruncate(fd, size_bytes) < 0:
        status = errno
    index.map_bytes = size_bytes
    index.entries_max = <int32_t>(size_bytes / index.entry_bytes)
    index.allocated_bytes = kept_bytes
    index.torn = 0
    if status == 0:
        map = files.mmap(NULL, <size_t>size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
        if map == MAP_FAILED:
            status = errno
        else:
            # Or the first entry reads 128 KB of nothing around it: two thirds of a log's closing.
            madvise(map, <size_t>size_bytes, MADV_RANDOM)
            kb_store_ptr(<void**>&index.map, map)
    close(fd)
    return status


cdef int index_open_readable(Index* index, const char* path, int32_t entry_bytes) noexcept nogil:
    index_close(index)
    index.entry_bytes = entry_bytes
    index.entries = 0
    index.entries_max = 0
    index.torn = 1
    cdef int fd = files.open(path, O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        return 0 if errno == ENOENT else errno
    cdef int64_t size_bytes = files.size(fd)
    cdef int status = errno if size_bytes < 0 else 0
    close(fd)
    if status != 0 or size_bytes / entry_bytes > 0x7FFFFFFF:
        return status
    index.entries = <int32_t>(size_bytes / entry_bytes)
    index.torn = size_bytes % entry_bytes != 0
    return 0


cdef int index_extend(Index* index, const char* path) noexcept nogil:
    cdef int64_t wanted_bytes
    cdef int fd, status
    if index.map == NULL:
        return EFBIG
    # A full index takes no more entries, which makes lookups scan further, and no mistake.
    if index.allocated_bytes == index.map_bytes:
        return 0
    fd = files.open(path, O_RDWR | O_CLOEXEC, 0)
    if fd < 0:
        return errno
    wanted_bytes = index.allocated_bytes + (
        ALLOCATE_FIRST_BYTES if index.allocated_bytes < ALLOCATE_FIRST_BYTES
        else ALLOCATE_NEXT_BYTES)
    status = allocate(index, fd, wanted_bytes)
    close(fd)
    return status


cdef int cut_file(const char* path, int64_t size_bytes) noexcept nogil:
    cdef int fd = files.open(path, O_RDWR | O_CLOEXEC, 0)
    cdef int status = 0
    if fd < 0:
        return errno
    if files.ftruncate(fd, size_bytes) < 0:
        status = errno
    close(fd)
    return status


cdef int index_end(Index* index) noexcept nogil:
    cdef int32_t entries = index.entries
    if index.entries_max == 0:
        return 0
    index_close(index)
    index.entries = entries
    return 1


cdef int index_shorten(const Index* index, const char* path) noexcept nogil:
    return cut_file(path, <int64_t>index.entries * index.entry_bytes)


cdef int index_trim(Index* index, const char* path) noexcept nogil:
    return index_shorten(index, path) if index_end(index) else 0


cdef void index_close(Index* index) noexcept nogil:
    if index.map != NULL:
        munmap(index.map, <size_t>index.map_bytes)
        index.map = NULL
    index.map_bytes = 0
    index.allocated_bytes = 0
    index.entries_max = 0


# --- Entries --------------------------------------------------------------------------------------

cdef int offset_index_append(
    Index* index, const char* path, int32_t relative, int32_t position
) noexcept nogil:
    cdef uint8_t* at = index.map + <int64_t>index.entries * OFFSET_ENTRY_BYTES
    if index.entries >= index.entries_max:
        return 1
    if not (
        require_of(OF_PARTITION, -1, path, index.entries >= 0 and index.map != NULL,
                   "index: an offset's entry is in the map", index.entries, index.entries_max)
        and require_of(OF_PARTITION, -1, path, relative >= 0 and position >= 0,
                       "index: offsets and positions are not negative", relative, position)
    ):
        return 0
    kb_put_u32(at, <uint32_t>relative)
    kb_put_u32(at + 4, <uint32_t>position)
    index.entries += 1
    return 1


cdef int time_index_append(
    Index* index, const char* path, int64_t timestamp_ms, int32_t relative
) noexcept nogil:
    cdef uint8_t* at = index.map + <int64_t>index.entries * TIME_ENTRY_BYTES
    cdef int64_t last_timestamp_ms = -1
    cdef int32_t last_relative = 0
    if index.entries >= index.entries_max:
        return 1
    if not require_of(OF_PARTITION, -1, path, index.entries >= 0 and index.map != NULL,
                      "index: a time's entry is in the map", index.entries, index.entries_max):
        return 0
    if index.entries > 0:
        last_timestamp_ms = get_i64(at - TIME_ENTRY_BYTES)
        last_relative = get_i32(at - TIME_ENTRY_BYTES + 8)
    if timestamp_ms <= last_timestamp_ms or relative < last_relative:
        return 1
    kb_put_u64(at, <uint64_t>timestamp_ms)
    kb_put_u32(at + 8, <uint32_t>relative)
    index.entries += 1
    return 1


# --- Reading --------------------------------------------------------------------------------------

cdef int reader_open(
    IndexReader* reader, const Index* index, const char* path, int must_not_wait
) noexcept nogil:
    reader.index = index
    reader.map = <const uint8_t*>kb_load_ptr(<void**>&index.map)
    reader.fd = -1
    reader.pread = files.pread_now if must_not_wait else files.pread
    if reader.map == NULL and index.entries > 0:
        if must_not_wait:
            reader.fd = files.open_now(path, O_RDONLY | O_CLOEXEC)
        else:
            reader.fd = files.open(path, O_RDONLY | O_CLOEXEC, 0)
        if reader.fd < 0:
            return errno
    return 0


cdef void reader_close(IndexReader* reader) noexcept nogil:
    if reader.fd >= 0:
        close(reader.fd)


cdef int read_entry(IndexReader* reader, int32_t at) noexcept nogil:
    # Into `reader.entry`.
    cdef int32_t length = reader.index.entry_bytes
    cdef int64_t position = <int64_t>at * length
    cdef int32_t total = 0
    cdef int64_t got
    if reader.map != NULL:
        memcpy(reader.entry, reader.map + position, <size_t>length)
        return 0
    while total < length:
        got = reader.pread(
            reader.fd, reader.entry + total, <size_t>(length - total), position + total)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            return errno if got < 0 else EIO      # EIO: the file has been cut
        total += <int32_t>got
    return 0


cdef inline IndexEntry no_entry() noexcept nogil:
    cdef IndexEntry entry
    entry.key = -1
    entry.value = 0
    return entry


cdef int look_up(
    const Index* index, const char* path, IndexColumn column, int64_t target, int must_not_wait,
    IndexEntry* found
) noexcept nogil:
    cdef int32_t low = 0, high = index.entries, middle
    cdef int of_times = index.entry_bytes == TIME_ENTRY_BYTES
    cdef IndexEntry entry
    cdef IndexReader reader
    cdef int status = reader_open(&reader, index, path, must_not_wait)
    found[0] = no_entry()
    while status == 0 and low < high:     # low: how many entries are at or below the target
        middle = low + (high - low) / 2
        status = read_entry(&reader, middle)
        entry.key = get_i64(reader.entry) if of_times else get_i32(reader.entry)
        entry.value = get_i32(reader.entry + (AT_RELATIVE_OFFSET if of_times else AT_POSITION))
        if status != 0:
            break
        if column == AFTER_VALUE:
            if entry.value < target:
                low = middle + 1
            else:
                high = middle
                found[0] = entry
        elif (entry.value if column == BY_VALUE else entry.key) <= target:
            low = middle + 1
            found[0] = entry
        else:
            high = middle
    reader_close(&reader)
    if status != 0:
        found[0] = no_entry()
    return status


cdef IndexEntry index_look_up(
    const Index* index, const char* path, IndexColumn column, int64_t target
) noexcept nogil:
    cdef IndexEntry found
    look_up(index, path, column, target, 0, &found)
    return found


cdef int index_look_up_now(
    const Index* index, const char* path, IndexColumn column, int64_t target, IndexEntry* found
) noexcept nogil:
    return look_up(index, path, column, target, 1, found) != EAGAIN


cdef int entries_below(
    IndexReader* reader, int32_t at, int64_t limit, int32_t* count
) noexcept nogil:
    # How many entries have a number below `limit` there; each number is above the one before it.
    cdef int32_t low = 0, high = reader.index.entries, middle
    cdef int status = 0
    while status == 0 and low < high:
        middle = low + (high - low) / 2
        status = read_entry(reader, middle)
        if status == 0 and get_i32(reader.entry + at) < limit:
            low = middle + 1
        else:
            high = middle
    count[0] = low
    return status


cdef int index_cut(Index* index, const char* path, int32_t at, int64_t limit) noexcept nogil:
    cdef int32_t stay = 0
    cdef IndexReader reader
    cdef int status = reader_open(&reader, index, path, 0)
    if status == 0:
        status = entries_below(&reader, at, limit, &stay)
    reader_close(&reader)
    if status != 0 or stay == index.entries and index.entries_max == 0:
        return status
    index_close(index)
    index.entries = stay
    return cut_file(path, <int64_t>stay * index.entry_bytes)


cdef inline int32_t from_entry(const Index* index, int32_t checked) noexcept nogil:
    return index.entries - checked if index.entries > checked else 0


cdef int offset_index_check(
    const Index* index, const char* path, int64_t size_bytes, int32_t checked, int* fits
) noexcept nogil:
    cdef int32_t at, relative, position, last_relative = -1, last_position = -1
    cdef IndexReader reader
    cdef int status = reader_open(&reader, index, path, 0)
    cdef int good = status == 0 and not index.torn
    for at in range(from_entry(index, checked), index.entries):
        if not good:
            break
        status = read_entry(&reader, at)
        relative = get_i32(reader.entry)
        position = get_i32(reader.entry + 4)
        good = (status == 0 and relative > last_relative and position > last_position
                and position < size_bytes)
        last_relative = relative
        last_position = position
    reader_close(&reader)
    fits[0] = good
    return status


cdef int time_index_check(
    const Index* index, const char* path, int32_t checked, int* fits,
    int64_t* last_timestamp_ms, int32_t* last_relative
) noexcept nogil:
    cdef int32_t at, relative
    cdef int64_t timestamp_ms
    cdef IndexReader reader
    cdef int status = reader_open(&reader, index, path, 0)
    cdef int good = status == 0 and not index.torn
    last_timestamp_ms[0] = -1
    last_relative[0] = -1
    for at in range(from_entry(index, checked), index.entries):
        if not good:
            break
        status = read_entry(&reader, at)
        timestamp_ms = get_i64(reader.entry)
        relative = get_i32(reader.entry + 8)
        good = (status == 0 and timestamp_ms > last_timestamp_ms[0] and relative >= 0
                and relative >= last_relative[0])
        last_timestamp_ms[0] = timestamp_ms
        last_relative[0] = relative
    reader_close(&reader)
    fits[0] = good
    return status
