# cython: language_level=3
"""What `wire.py` describes: the reader of a request's body and the writer of an answer's.

Compiled because of requests with many items: one of two bytes may cost two microseconds of CPU
(docs/hostile.md), which is what one call of a Python method takes. Everything here is Python's,
with the GIL; what runs without it reads with `_cursor.pxd`.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from cpython.exc cimport PyErr_Clear
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsEncodedString, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from struct import Struct
from types import MappingProxyType
from uuid import UUID

from kbroker import limits
from kbroker.outside_text import untellable
from kbroker.protocol._cursor cimport (
    kb_get_u16,
    kb_get_u32,
    kb_get_u64,
    kb_put_u16,
    kb_put_u32,
    kb_put_u64,
)

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*)  # NULL: raised

cdef enum:
    ID_BYTES = 16
    VARINT_BYTES_MAX = 5
    WRITER_BYTES_MIN = 256

cdef int64_t _ITEMS_MAX = limits.ARRAY_ITEMS_MAX
cdef uint32_t _TAGS_MAX = limits.TAGGED_FIELDS_MAX
# The most of the older encoding; Apache Kafka refuses longer ones in the flexible one, too.
cdef Py_ssize_t _STRING_MAX = limits.TEXT_BYTES_MAX

cdef bytes _NO_ID = bytes(ID_BYTES)
cdef object _FLOAT64 = Struct(">d")
NO_TAGS = MappingProxyType({})


class ProtocolError(Exception):
    """Bytes that are no message of the announced API and version; ends the connection."""


cdef class Reader:
    """A cursor over the body of one request."""

    def __init__(self, bytes data not None, *, bint flexible):
        self._data = data
        self._begin = <const uint8_t*>PyBytes_AsString(data)
        self._position = 0
        self._end = PyBytes_Size(data)
        self._flexible = flexible
        # One budget for all arrays, so that a frame of 100 MB cannot become gigabytes of objects.
        self._items_left = _ITEMS_MAX

    @property
    def left(self):
        """Bytes that have not been read."""
        return self._end - self._position

    cdef const uint8_t* _take(self, Py_ssize_t size) except NULL:
        # Steps over so many bytes; where they begin.
        cdef Py_ssize_t begin = self._position
        if size < 0 or size > self._end - begin:
            raise ProtocolError(f"{size} bytes wanted, {self._end - begin} left")
        self._position = begin + size
        return self._begin + begin

    cdef int64_t _unsigned_varint(self) except -1:
        cdef uint64_t value = 0
        cdef uint8_t byte
        cdef int index
        for index in range(VARINT_BYTES_MAX):
            byte = self._take(1)[0]
            value |= <uint64_t>(byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >> 32:
                    break
                return <int64_t>value
        raise ProtocolError("a varint of more than 32 bits")

    # How much follows, or -1 for null; -2: raised.
    cdef int64_t _string_size(self) except -2:
        if self._flexible:
            return self._unsigned_varint() - 1
        return max(-1, <int16_t>kb_get_u16(self._take(2)))

    cdef int64_t _size(self) except -2:
        if self._flexible:
            return self._unsigned_varint() - 1
        return max(-1, <int32_t>kb_get_u32(self._take(4)))

    cdef bytes _bytes(self, Py_ssize_t size):
        cdef const uint8_t* begin = self._take(size)
        return PyBytes_FromStringAndSize(<const char*>begin, size)

    def int8(self):
        return <signed char>self._take(1)[0]

    def boolean(self):
        return self._take(1)[0] != 0

    def int16(self):
        return <int16_t>kb_get_u16(self._take(2))

    def int32(self):
        return <int32_t>kb_get_u32(self._take(4))

    def int64(self):
        return <int64_t>kb_get_u64(self._take(8))

    def uint16(self):
        return <uint16_t>kb_get_u16(self._take(2))

    def uint32(self):
        return kb_get_u32(self._take(4))

    cpdef float64(self):
        return _FLOAT64.unpack(self._bytes(8))[0]

    cpdef uuid(self):
        """A topic id; the zero id, which means "none", is None."""
        cdef const uint8_t* begin = self._take(ID_BYTES)
        if memcmp(begin, PyBytes_AsString(_NO_ID), ID_BYTES) == 0:
            return None
        return UUID(bytes=PyBytes_FromStringAndSize(<const char*>begin, ID_BYTES))

    def unsigned_varint(self):
        return self._unsigned_varint()

    cpdef nullable_string(self):
        cdef int64_t size = self._string_size()
        if size < 0:
            return None
        if size > _STRING_MAX:
            raise ProtocolError(f"a string of {size} bytes")
        # What is no UTF-8 is some other name, as in Apache Kafka, and mostly one that cannot be.
        return PyUnicode_DecodeUTF8(<const char*>self._take(size), size, "replace")

    cpdef nullable_bytes(self):
        cdef int64_t size = self._size()
        return None if size < 0 else self._bytes(size)

    def string(self):
        value = self.nullable_string()
        if value is None:
            raise ProtocolError("null for a string that may not be null")
        return value

    cpdef nullable_array(self):
        """The number of items that follow, or None for a null array."""
        cdef int64_t count = self._size()
        cdef Py_ssize_t left = self._end - self._position
        if count < 0:
            return None
        # No item takes less than a byte, so a larger count cannot be true.
        if count > left or count > self._items_left:
            raise ProtocolError(f"an array of {count} items in {left} bytes")
        self._items_left -= count
        return count

    def array(self):
        count = self.nullable_array()
        if count is None:
            raise ProtocolError("null for an array that may not be null")
        return count

    cdef int64_t _tag_count(self) except -1:
        # How many tagged fields follow.
        cdef int64_t count = self._unsigned_varint()
        if count > _TAGS_MAX:
            raise ProtocolError(f"{count} tagged fields")
        return count

    def raw(self, Py_ssize_t size):
        """Bytes that the caller reads."""
        return self._bytes(size)

    def tags(self, known=NO_TAGS):
        """The tagged fields that end a structure: known ones are read, the others stepped over."""
        cdef int64_t count, size
        if not self._flexible:
            return
        count = self._tag_count()
        while count > 0:
            count -= 1
            tag = self._unsigned_varint()
            size = self._unsigned_varint()
            field = self._bytes(size)
            read = known.get(tag)
            if read is not None:
                read(Reader(field, flexible=True))


cdef class Writer:
    """The body of one answer, grown field by field."""

    def __init__(self, *, bint flexible):
        self._flexible = flexible

    def __dealloc__(self):
        PyMem_Free(self._begin)

    cdef uint8_t* _grow(self, Py_ssize_t size) except NULL:
        # So many bytes more; where they begin.
        cdef Py_ssize_t begin = self._size
        cdef Py_ssize_t room
        cdef void* larger
        if size > self._room - begin or self._begin == NULL:
            room = max(WRITER_BYTES_MIN, 2 * self._room, begin + size)
            larger = PyMem_Realloc(self._begin, room)
            if larger == NULL:
                raise MemoryError
            self._begin, self._room = <uint8_t*>larger, room
        self._size = begin + size
        return self._begin + begin

    cdef int _put(self, bytes data) except -1:
        cdef Py_ssize_t size = PyBytes_Size(data)
        memcpy(self._grow(size), PyBytes_AsString(data), size)
        return 0

    cdef int _put_unsigned_varint(self, int64_t value) except -1:
        if value < 0 or value > 0xFFFF_FFFF:
            raise ValueError(f"{value} is no unsigned 32-bit number")
        while value >= 0x80:
            self._grow(1)[0] = <uint8_t>(value & 0x7F | 0x80)
            value >>= 7
        self._grow(1)[0] = <uint8_t>value
        return 0

    # A size, -1 for null.
    cdef int _put_size(self, int64_t size) except -1:
        if self._flexible:
            return self._put_unsigned_varint(size + 1)
        if size > 0x7FFF_FFFF:
            raise ValueError(f"{size} is no 32-bit number")
        kb_put_u32(self._grow(4), <uint32_t>size)
        return 0

    cpdef getvalue(self):
        return PyBytes_FromStringAndSize(<const char*>self._begin, self._size)

    def raw(self, bytes data not None):
        """Bytes that are encoded already."""
        self._put(data)

    def int8(self, int value):
        self._grow(1)[0] = <uint8_t>value

    def boolean(self, bint value):
        self._grow(1)[0] = value

    def int16(self, int16_t value):
        kb_put_u16(self._grow(2), <uint16_t>value)

    def int32(self, int32_t value):
        kb_put_u32(self._grow(4), <uint32_t>value)

    def int64(self, int64_t value):
        kb_put_u64(self._grow(8), <uint64_t>value)

    cpdef uuid(self, value):
        self._put(_NO_ID if value is None else value.bytes)

    cpdef float64(self, double value):
        self._put(_FLOAT64.pack(value))

    cpdef string(self, str value):
        cdef bytes text
        cdef const char* begin
        cdef Py_ssize_t size
        if value is None:
            if self._flexible:
                self._grow(1)[0] = 0
            else:
                kb_put_u16(self._grow(2), 0xFFFF)
            return
        begin = PyUnicode_AsUTF8AndSize(value, &size)
        if begin == NULL:  # half a surrogate pair
            PyErr_Clear()
            text = PyUnicode_AsEncodedString(value, "utf-8", "replace")
            begin, size = PyBytes_AsString(text), PyBytes_Size(text)
        if size > _STRING_MAX:
            raise untellable(size)
        if self._flexible:
            self._put_unsigned_varint(size + 1)
        else:
            kb_put_u16(self._grow(2), <uint16_t>size)
        memcpy(self._grow(size), begin, size)

    def bytes(self, bytes value not None):
        self._put_size(PyBytes_Size(value))
        self._put(value)

    def array(self, count):
        self._put_size(-1 if count is None else count)

    def tags(self, fields=NO_TAGS):
        """The tagged fields that end a structure: content by tag, by default none."""
        if not self._flexible:
            return
        if not fields:
            self._grow(1)[0] = 0
            return
        self._put_unsigned_varint(len(fields))
        for tag, content in sorted(fields.items()):
            self._put_unsigned_varint(tag)
            self._put_unsigned_varint(len(content))
            self.raw(content)


cdef Reader reader_of(bytes data, bint flexible):
    # As `Reader(data, flexible=flexible)`, without a call of Python's.
    cdef Reader reader = Reader.__new__(Reader)
    reader._data = data
    reader._begin = <const uint8_t*>PyBytes_AsString(data)
    reader._end = PyBytes_Size(data)
    reader._flexible = flexible
    reader._items_left = _ITEMS_MAX
    return reader


cdef Writer writer_of(bint flexible):
    cdef Writer writer = Writer.__new__(Writer)
    writer._flexible = flexible
    return writer


def encode_unsigned_varint(int64_t value):
    cdef Writer out = Writer(flexible=True)
    out._put_unsigned_varint(value)
    return out.getvalue()


def encode_string(value, *, bint flexible):
    cdef Writer out = Writer(flexible=flexible)
    out.string(value)
    return out.getvalue()


def encode_array_length(count, *, bint flexible):
    cdef Writer out = Writer(flexible=flexible)
    out.array(count)
    return out.getvalue()
