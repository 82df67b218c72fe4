# cython: language_level=3
# The two classes of _wire.pyx for compiled code; `_messages.pyx` reads and writes with them.

from libc.stdint cimport int64_t, uint8_t


cdef class Reader:
    cdef bytes _data
    cdef const uint8_t* _begin  # of `_data`
    cdef Py_ssize_t _position
    cdef Py_ssize_t _end
    cdef int64_t _items_left
    cdef bint _flexible

    cdef const uint8_t* _take(self, Py_ssize_t size) except NULL
    cdef int64_t _unsigned_varint(self) except -1
    cdef int64_t _string_size(self) except -2
    cdef int64_t _size(self) except -2
    cdef bytes _bytes(self, Py_ssize_t size)
    cdef int64_t _tag_count(self) except -1
    cpdef float64(self)
    cpdef uuid(self)
    cpdef nullable_string(self)
    cpdef nullable_bytes(self)
    cpdef nullable_array(self)


cdef class Writer:
    cdef uint8_t* _begin
    cdef Py_ssize_t _size   # bytes that are written, of `_room`
    cdef Py_ssize_t _room
    cdef bint _flexible

    cpdef getvalue(self)
    cdef uint8_t* _grow(self, Py_ssize_t size) except NULL
    cdef int _put(self, bytes data) except -1
    cdef int _put_unsigned_varint(self, int64_t value) except -1
    cdef int _put_size(self, int64_t size) except -1
    cpdef uuid(self, value)
    cpdef float64(self, double value)
    cpdef string(self, str value)


cdef Reader reader_of(bytes data, bint flexible)
cdef Writer writer_of(bint flexible)
