# cython: language_level=3
"""The interpreter of message tables: one loop that reads or writes a record field by field.

A table (`messages/`) is compiled once for each version and direction to a `Plan`: an array of C
steps, one for each field, in the order of the wire. A step has the field's kind, its flags, its
name, where its slot is within a record and, where it is a structure or an array of them, the plan
of the inner record. No Python function is called for a field, and no attribute is looked up.

The bytes come from a socket. Lengths and counts are compared with the bytes that are left, and
one budget for all arrays of a message bounds what they may become (`Reader`), so memory follows
the bytes received and not the claim of a count.

Everything here holds the GIL, and lets go of it for a moment where it reads long arrays. A plan
does not change once it is made; any thread may use it.
"""

from cpython.bytes cimport PyBytes_Size
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
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
    PyObject* PyDict_GetItemWithError(object names, object name) except? NULL
    int PyDict_Next(object names, Py_ssize_t* at, PyObject** name, PyObject** value)

cdef enum:
    RECORDS_AT_ONCE = 256         # of an array, until other threads have the GIL if they wait

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
    PACKED_INT32 = 12  # an array of int32 as the bytes received, for readers in C
    REST = 13          # all bytes that are left, without their size

cpdef enum Flag:
    ARRAY = 1
    NULLABLE = 2
    ABSENT = 4         # this version does not have it: a record gets the default


cdef struct Step:
    int kind
    int flags
    int tag
    Py_ssize_t offset  # of the slot, in bytes from the beginning of a record
    PyObject* name     # borrowed of Plan._kept, as the next two
    PyObject* default
    PyObject* inner    # a Plan, of a structure


cdef struct Slot:
    Py_ssize_t offset  # as in Step
    PyObject* name     # borrowed of Layout._kept, as the next
    PyObject* default


cdef class Encoded:
    """An array with its count, or a record with its tags, that is encoded already."""

    cdef readonly bytes data

    def __init__(self, bytes data not None):
        self.data = data

    def __eq__(self, other):
        return isinstance(other, Encoded) and self.data == (<Encoded>other).data

    def __hash__(self):
        return hash(self.data)


cdef class Layout:
    """Where the fields of one class of records are, and what each is where it is not given."""

    cdef Slot* _slots
    cdef int _count
    cdef list _kept           # what the slots borrow

    def __cinit__(self, kind not None, dict defaults not None):
        """`defaults` by name, in the order of the wire."""
        cdef Slot* slot
        cdef int index
        self._kept = list(defaults.items())
        self._count = len(self._kept)
        self._slots = <Slot*>PyMem_Calloc(max(1, self._count), sizeof(Slot))
        if self._slots == NULL:
            raise MemoryError
        for index, (name, default) in enumerate(self._kept):
            slot = &self._slots[index]
            slot.offset = _offset_of(kind, name)
            slot.name = <PyObject*>name
            slot.default = <PyObject*>default

    def __dealloc__(self):
        PyMem_Free(self._slots)

    cdef Slot* _find(self, object name, int likely) except NULL:
        # Names are mostly given in the order of the table, and as the same objects.
        cdef int index
        if likely < self._count and self._slots[likely].name == <PyObject*>name:
            return &self._slots[likely]
        for index in range(self._count):
            if self._slots[index].name == <PyObject*>name:
                return &self._slots[index]
        for index in range(self._count):
            if <object>self._slots[index].name == name:
                return &self._slots[index]
        raise TypeError(f"there is no field {name}")


cdef Py_ssize_t _offset_of(object kind, object name) except -1:
    # Where a record has what is put into the slot: the limited API gives no offset of a slot.
    cdef object record = PyType_GenericAlloc(<PyTypeObject*>kind, 0)
    cdef object mark = object()
    cdef Py_ssize_t offset
    setattr(record, name, mark)
    for offset in range(object.__basicsize__, kind.__basicsize__, sizeof(PyObject*)):
        if _slot_of(record, offset)[0] == <PyObject*>mark:
            return offset
    raise TypeError(f"{name} is no slot")


cdef inline object _copy_of(PyObject* default):
    return [] if type(<object>default) is list else <object>default


cdef inline PyObject** _slot_of(object record, Py_ssize_t offset):
    return <PyObject**>(<char*><PyObject*>record + offset)


cdef inline void _set(object record, Py_ssize_t offset, object value):
    cdef PyObject** slot = _slot_of(record, offset)
    cdef PyObject* before = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject*>value
    Py_XDECREF(before)


# The layout of each class of records.
cdef dict _layouts = {}


cdef Layout _layout_of(object kind):
    cdef PyObject* place = PyDict_GetItemWithError(_layouts, kind)
    if place == NULL:
        raise TypeError(f"{kind.__qualname__} has no fields")
    return <Layout>place


def lay_out(kind not None, dict defaults not None):
    """Let calls of `kind`, a class of slots, make its records; `defaults` as in `Layout`."""
    _layouts[kind] = Layout(kind, defaults)


cdef class Record:
    """One structure of a message: its fields are slots, named as in Kafka's protocol guide.

    `_fields` of a class is a tuple of names. A field that is not given has its default; an empty
    list there means a new one each time.
    """

    _fields = ()

    def __init__(self, *given, **fields):
        cdef Layout layout = _layout_of(type(self))
        cdef PyObject* name
        cdef PyObject* value
        cdef Slot* slot
        cdef Py_ssize_t at = 0
        cdef int index = 0
        if given:
            raise TypeError(f"{type(self).__qualname__} takes its fields by name")
        while PyDict_Next(fields, &at, &name, &value):
            slot = layout._find(<object>name, index)
            _set(self, slot.offset, <object>value)
            index = <int>(slot - layout._slots) + 1
        for index in range(layout._count):
            slot = &layout._slots[index]
            if _slot_of(self, slot.offset)[0] == NULL:
                _set(self, slot.offset, _copy_of(slot.default))

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
            step.offset = _offset_of(record, name)
            step.name = <PyObject*>name
            step.default = <PyObject*>default
            step.inner = <PyObject*>inner
            if inner is not None and not isinstance(inner, Plan):
                raise TypeError(f"{name}: the plan of its record is missing")
            if kind == STRUCT and inner is None and not flags & ABSENT:
                raise TypeError(f"{name}: a structure without a record")
            step.tag = -1 if index < self._count else tagged[index - self._count][0]

    def __dealloc__(self):
        PyMem_Free(self._steps)

    def decode(self, bytes body not None):
        """A record from the bytes of a peer. ProtocolError: they are none of this version.

        Bytes after the last field are left alone, as Apache Kafka does.
        """
        return _read_record(self, reader_of(body, self._flexible))

    def read(self, Reader reader not None):
        """As `decode`, from where a reader of the same encoding is."""
        return _read_record(self, reader)

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
            value = _copy_of(step.default)
        elif step.flags & ARRAY:
            value = _read_array(step, reader)
        else:
            value = _read_value(step, reader)
        _set(record, step.offset, value)
    if plan._flexible:
        _read_tags(plan, reader, record)
    return record


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
        if step.flags & NULLABLE:
            present = <signed char>reader._take(1)[0]
            # In a tagged field Apache Kafka writes a varint there, which is 0 for null.
            if present < 0 or (present == 0 and step.tag >= 0):
                return None
        return _read_record(<Plan>step.inner, reader)
    if kind == PACKED_INT32:
        size = reader._size()
        if size < 0:
            return _null_of(step)
        return reader._bytes(4 * size)
    if kind == REST:
        return reader._bytes(reader._end - reader._position)
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
            if left and left % RECORDS_AT_ONCE == 0:
                with nogil:
                    pass
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
        _set(record, step.offset, _copy_of(step.default))
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
                _set(record, step.offset, value)
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
        value = _value_of(step, record)
        if step.flags & ARRAY:
            _write_array(step, writer, value)
        else:
            _write_value(step, writer, value)
    if plan._flexible:
        _write_tags(plan, writer, record)
    return 0


cdef inline object _value_of(Step* step, object record):
    cdef PyObject* value = _slot_of(record, step.offset)[0]
    if value == NULL:
        raise AttributeError(<object>step.name)  # it was deleted
    return <object>value


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
            writer._put_size(PyBytes_Size(<bytes?>value))
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
            writer._put_size(PyBytes_Size(<bytes?>value) // 4)
            writer._put(value)
    elif kind == REST:
        writer._put(<bytes?>value)
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
        value = _value_of(step, record)
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
        writer._put_unsigned_varint(PyBytes_Size(<bytes>content))
        writer._put(content)
    return 0
