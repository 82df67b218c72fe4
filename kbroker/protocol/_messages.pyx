# cython: language_level=3
"""The interpreter of message tables: one loop that reads or writes a record field by field.

A table (`messages/`) is compiled once for each version and direction to a `Plan`: an array of C
steps, one for each field, in the order of the wire. A step has the field's kind, its flags, its
name and, where it is a structure or an array of them, the plan of the inner record. No Python
function is called for a field; an attribute of a record is a slot.

What is read comes from a socket. Lengths and counts are compared with the bytes that are left, and
one budget for all arrays of a message bounds what they may become (`Reader`), so memory follows
what was received and not what a count claims.

Everything here holds the GIL. A plan does not change once it is made; any thread may use it.
"""

from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from kbroker.protocol._cursor cimport (
    kb_get_u16,
    kb_get_u32,
    kb_get_u64,
    kb_put_u16,
    kb_put_u32,
    kb_put_u64,
)
from kbroker.protocol._wire cimport Reader, Writer, reader_of, writer_of

from kbroker.protocol._wire import ProtocolError

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* cls, Py_ssize_t items)
    int PyObject_SetAttr(object, object, object) except -1
    object PyObject_GetAttr(object, object)

# The kinds of fields, by the names of the protocol guide.
cpdef enum Kind:
    BOOLEAN = 0
    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT16 = 5
    UINT32 = 6
    FLOAT64 = 7
    UUID = 8
    STRING = 9
    BYTES = 10
    STRUCT = 11
    PACKED_INT32 = 12  # an array of int32 as the bytes that came, for who reads it in C

cpdef enum Flag:
    ARRAY = 1
    NULLABLE = 2
    ABSENT = 4         # this version does not have it: a record gets the default


cdef struct Step:
    int kind
    int flags
    int tag
    PyObject* name     # borrowed of Plan._kept, as the next two
    PyObject* default
    PyObject* inner    # a Plan, of a structure


cdef class Encoded:
    """An array with its count, or a record with its tags, that is encoded already."""

    cdef readonly bytes data

    def __init__(self, bytes data not None):
        self.data = data

    def __eq__(self, other):
        return isinstance(other, Encoded) and self.data == (<Encoded>other).data

    def __hash__(self):
        return hash(self.data)


cdef class Record:
    """One structure of a message: its fields are slots, named as in Kafka's protocol guide.

    `_fields` of a class is a tuple of names, `_defaults` what each is where it is not given; an
    empty list there stands for a new one each time.
    """

    _fields = ()
    _defaults = {}

    def __init__(self, **values):
        cdef object kind = type(self)
        for name, value in values.items():
            PyObject_SetAttr(self, name, value)
        if len(values) == len(kind._fields):
            return
        for name, default in kind._defaults.items():
            if name not in values:
                PyObject_SetAttr(self, name, [] if type(default) is list else default)

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields)

    __hash__ = None  # its fields change

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__qualname__}({fields})"


cdef class Plan:
    """How one version of a record is laid out: what is read and written, in this order."""

    cdef Step* _steps         # those in the order of the wire, then those with a tag
    cdef int _count
    cdef int _tagged_count
    cdef list _kept           # what the steps borrow
    cdef bint _flexible
    cdef readonly object record

    def __cinit__(self, record, list steps, list tagged, *, bint flexible):
        """`steps`: (name, kind, flags, default, inner plan or None); `tagged`: the same by tag."""
        cdef int index
        cdef Step* step
        self.record = record
        self._flexible = flexible
        self._count = len(steps)
        self._tagged_count = len(tagged)
        self._kept = [*steps, *[row for _, row in tagged]]
        self._steps = <Step*>PyMem_Calloc(max(1, len(self._kept)), sizeof(Step))
        if self._steps == NULL:
            raise MemoryError
        for index, (name, kind, flags, default, inner) in enumerate(self._kept):
            step = &self._steps[index]
            step.kind = kind
            step.flags = flags
            step.name = <PyObject*>name
            step.default = <PyObject*>default
            step.inner = <PyObject*>inner
            if inner is not None and not isinstance(inner, Plan):
                raise TypeError(f"{name}: the plan of its record is missing")
            if kind == STRUCT and inner is None and not flags & ABSENT:
                raise TypeError(f"{name}: a structure without a record")
            if index >= self._count:
                step.tag = tagged[index - self._count][0]

    def __dealloc__(self):
        PyMem_Free(self._steps)

    def decode(self, bytes body not None):
        """A record from the bytes of a peer. ProtocolError: they are none of this version.

        Bytes after the last field are left alone, as Apache Kafka does.
        """
        return _read_record(self, reader_of(body, self._flexible))

    def encode(self, record):
        """A record's bytes. TypeError, ValueError, OverflowError: this version cannot say it."""
        cdef Writer writer = writer_of(self._flexible)
        _write_record(self, writer, record)
        return writer.getvalue()

    def encode_array(self, records):
        """An array of records, encoded for a message that has it more than once."""
        cdef Writer writer = writer_of(self._flexible)
        writer._put_size(len(records))
        for record in records:
            _write_record(self, writer, record)
        return Encoded(writer.getvalue())


# --- Reading --------------------------------------------------------------------------------------

cdef object _read_record(Plan plan, Reader reader):
    cdef object record = PyType_GenericAlloc(<PyTypeObject*>plan.record, 0)
    cdef Step* step
    cdef int index
    for index in range(plan._count):
        step = &plan._steps[index]
        if step.flags & ABSENT:
            value = _default_of(step)
        elif step.flags & ARRAY:
            value = _read_array(step, reader)
        else:
            value = _read_value(step, reader)
        PyObject_SetAttr(record, <object>step.name, value)
    if plan._flexible:
        _read_tags(plan, reader, record)
    return record


cdef inline object _default_of(Step* step):
    cdef object default = <object>step.default
    return [] if type(default) is list else default


cdef object _null_of(Step* step):
    if step.flags & NULLABLE:
        return None
    raise ProtocolError(f"null for {<object>step.name}, which may not be null")


cdef object _read_value(Step* step, Reader reader):
    cdef int kind = step.kind
    cdef int64_t size
    cdef object value
    if kind == INT32:
        return <int32_t>kb_get_u32(reader._take(4))
    if kind == STRING:
        value = reader.nullable_string()
        return _null_of(step) if value is None else value
    if kind == INT16:
        return <int16_t>kb_get_u16(reader._take(2))
    if kind == INT64:
        return <int64_t>kb_get_u64(reader._take(8))
    if kind == INT8:
        return <signed char>reader._take(1)[0]
    if kind == BOOLEAN:
        return reader._take(1)[0] != 0
    if kind == BYTES:
        size = reader._size()
        return _null_of(step) if size < 0 else reader._bytes(size)
    if kind == UUID:
        return reader.uuid()
    if kind == STRUCT:
        if step.flags & NULLABLE and <signed char>reader._take(1)[0] < 0:
            return None
        return _read_record(<Plan>step.inner, reader)
    if kind == PACKED_INT32:
        size = reader._size()
        if size < 0:
            return _null_of(step)
        return reader._bytes(4 * size)
    if kind == UINT16:
        return <uint16_t>kb_get_u16(reader._take(2))
    if kind == UINT32:
        return <uint32_t>kb_get_u32(reader._take(4))
    if kind == FLOAT64:
        return reader.float64()
    raise AssertionError(f"a field of kind {kind}")


cdef object _read_array(Step* step, Reader reader):
    cdef object count = reader.nullable_array()
    cdef int64_t left
    cdef list items
    if count is None:
        return _null_of(step)
    left = count
    items = []
    if step.kind == STRUCT:
        while left > 0:
            items.append(_read_record(<Plan>step.inner, reader))
            left -= 1
    else:
        while left > 0:
            items.append(_read_value(step, reader))
            left -= 1
    return items


cdef int _read_tags(Plan plan, Reader reader, object record) except -1:
    # Each known field is read within its own size; unknown ones are stepped over.
    cdef int64_t count, tag, size
    cdef Py_ssize_t end, field_end
    cdef Step* step
    cdef int index
    for index in range(plan._count, plan._count + plan._tagged_count):
        step = &plan._steps[index]
        PyObject_SetAttr(record, <object>step.name, _default_of(step))
    count = reader._tag_count()
    while count > 0:
        count -= 1
        tag = reader._unsigned_varint()
        size = reader._unsigned_varint()
        end = reader._end
        if size > end - reader._position:
            raise ProtocolError(f"a tagged field of {size} bytes, {end - reader._position} left")
        field_end = reader._position + size
        for index in range(plan._count, plan._count + plan._tagged_count):
            step = &plan._steps[index]
            if step.tag == tag:
                reader._end = field_end
                if step.flags & ARRAY:
                    value = _read_array(step, reader)
                else:
                    value = _read_value(step, reader)
                reader._end = end
                PyObject_SetAttr(record, <object>step.name, value)
                break
        reader._position = field_end
    return 0


# --- Writing --------------------------------------------------------------------------------------

cdef int _write_record(Plan plan, Writer writer, object record) except -1:
    cdef Step* step
    cdef int index
    if type(record) is Encoded:
        return writer._put((<Encoded>record).data)
    if type(record) is not plan.record:
        raise TypeError(f"{plan.record.__qualname__} is wanted, not {type(record).__qualname__}")
    for index in range(plan._count):
        step = &plan._steps[index]
        if step.flags & ABSENT:
            continue
        value = PyObject_GetAttr(record, <object>step.name)
        if step.flags & ARRAY:
            _write_array(step, writer, value)
        else:
            _write_value(step, writer, value)
    if plan._flexible:
        _write_tags(plan, writer, record)
    return 0


cdef int _require_nullable(Step* step) except -1:
    if not step.flags & NULLABLE:
        raise ValueError(f"{<object>step.name} is null, which this version cannot say")
    return 0


cdef int _write_value(Step* step, Writer writer, object value) except -1:
    cdef int kind = step.kind
    if kind == INT32:
        kb_put_u32(writer._grow(4), <uint32_t><int32_t>value)
    elif kind == STRING:
        if value is None:
            _require_nullable(step)
        writer.string(value)
    elif kind == INT16:
        kb_put_u16(writer._grow(2), <uint16_t><int16_t>value)
    elif kind == INT64:
        kb_put_u64(writer._grow(8), <uint64_t><int64_t>value)
    elif kind == INT8:
        writer._grow(1)[0] = <uint8_t><signed char>value
    elif kind == BOOLEAN:
        writer._grow(1)[0] = <bint>value
    elif kind == BYTES:
        if value is None:
            _require_nullable(step)
            writer._put_size(-1)
        else:
            writer._put_size(PyBytes_GET_SIZE(<bytes?>value))
            writer._put(value)
    elif kind == UUID:
        writer.uuid(value)
    elif kind == STRUCT:
        if step.flags & NULLABLE:
            writer._grow(1)[0] = 0xFF if value is None else 1
            if value is None:
                return 0
        _write_record(<Plan>step.inner, writer, value)
    elif kind == PACKED_INT32:
        if value is None:
            _require_nullable(step)
            writer._put_size(-1)
        else:
            writer._put_size(PyBytes_GET_SIZE(<bytes?>value) // 4)
            writer._put(value)
    elif kind == UINT16:
        kb_put_u16(writer._grow(2), <uint16_t>value)
    elif kind == UINT32:
        kb_put_u32(writer._grow(4), <uint32_t>value)
    elif kind == FLOAT64:
        writer.float64(value)
    else:
        raise AssertionError(f"a field of kind {kind}")
    return 0


cdef int _write_array(Step* step, Writer writer, object value) except -1:
    cdef Plan inner
    if value is None:
        _require_nullable(step)
        writer._put_size(-1)
        return 0
    if type(value) is Encoded:
        writer._put((<Encoded>value).data)
        return 0
    writer._put_size(len(value))
    if step.kind == STRUCT:
        inner = <Plan>step.inner
        for item in value:
            _write_record(inner, writer, item)
    else:
        for item in value:
            _write_value(step, writer, item)
    return 0


cdef int _write_tags(Plan plan, Writer writer, object record) except -1:
    # Only fields that differ from their default are sent (KIP-482).
    cdef Step* step
    cdef Writer field
    cdef int index
    cdef list fields
    if plan._tagged_count == 0:
        writer._grow(1)[0] = 0
        return 0
    fields = []
    for index in range(plan._count, plan._count + plan._tagged_count):
        step = &plan._steps[index]
        value = PyObject_GetAttr(record, <object>step.name)
        if value == <object>step.default:
            continue
        field = writer_of(True)
        if step.flags & ARRAY:
            _write_array(step, field, value)
        else:
            _write_value(step, field, value)
        fields.append((step.tag, field.getvalue()))
    writer._put_unsigned_varint(len(fields))
    for tag, content in fields:
        writer._put_unsigned_varint(tag)
        writer._put_unsigned_varint(PyBytes_GET_SIZE(<bytes>content))
        writer._put(content)
    return 0
