"""What a message table is made of: fields, with the versions in which they exist.

A module of this package is the table of one API: a class `Request` and a class `Response`, and one
class for each structure within them. Fields are named as in Kafka's protocol guide and come in the
order of the wire:

    class Request(Message, api=ApiKey.HEARTBEAT, versions=(0, 4)):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string(since=3, null=3, default=None)

`since` and `until` are the first and last version in which a field is sent. In the others a record
that is read has the default, and the value of a record that is written is left out. `null` is the
first version in which the field may be null. `tag` makes it a tagged field (KIP-482), which is sent
where it differs from the default. A tag from OWN_TAGS_SINCE on is kbroker's own: other clients and
brokers skip it, and a response has it only where the request asks for it by one. The default is 0,
False, "", b"", the zero id (None) or an empty array where none is given.

The first use of a version compiles its plan (`protocol/_messages.pyx`). `protocol/versions.py` says
which versions are flexible; `flexible` does for a message that belongs to no API. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, Self, dataclass_transform

from kbroker.protocol import _messages
from kbroker.protocol._messages import Encoded, Flag, Kind, Plan
from kbroker.protocol.versions import FLEXIBLE_SINCE, NEVER
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey

OWN_TAGS_SINCE: Final = 10_000
_LAST: Final = NEVER - 1
_NOT_GIVEN: Final = object()


class Field(NamedTuple):
    """One row of a table; `each` is described at `array`."""

    kind: Kind
    default: Any
    record: type[Record] | None = None
    is_array: bool = False
    since: int = 0
    until: int = _LAST
    null: int = NEVER
    tag: int | None = None
    each: tuple[str, ...] = ()
    has_default: bool = False

    def in_version(self, version: int, *, flexible: bool) -> tuple[int, int, Any, Plan | None]:
        """Kind, flags, default and the plan of its record, as `Plan` takes them."""
        flags = int(Flag.ARRAY) if self.is_array else 0
        if not self.since <= version <= self.until:
            return self.kind, flags | Flag.ABSENT, self.default, None
        if version >= self.null:
            flags |= Flag.NULLABLE
        inner = None if self.record is None else self.record.plan(version, flexible=flexible)
        return self.kind, flags, self.default, inner


def _scalar(kind: Kind, zero: object) -> Callable[..., Any]:
    def field(
        *,
        since: int = 0,
        until: int = _LAST,
        null: int = NEVER,
        tag: int | None = None,
        default: object = _NOT_GIVEN,
    ) -> Any:
        given = default is not _NOT_GIVEN
        value = default if given else zero
        return Field(kind, value, None, False, since, until, null, tag, has_default=given)

    return field


boolean: Final = _scalar(Kind.BOOLEAN, zero=False)
int8: Final = _scalar(Kind.INT8, 0)
int16: Final = _scalar(Kind.INT16, 0)
int32: Final = _scalar(Kind.INT32, 0)
int64: Final = _scalar(Kind.INT64, 0)
uint16: Final = _scalar(Kind.UINT16, 0)
uint32: Final = _scalar(Kind.UINT32, 0)
float64: Final = _scalar(Kind.FLOAT64, 0.0)
uuid: Final = _scalar(Kind.UUID, None)
string: Final = _scalar(Kind.STRING, "")
bytes_: Final = _scalar(Kind.BYTES, b"")
# An array of int32 as the big-endian bytes that came: for code that reads them in C.
packed_int32: Final = _scalar(Kind.PACKED_INT32, b"")
# The last field of a message of kbroker's own: all bytes that are left, without their size.
rest: Final = _scalar(Kind.REST, b"")


def array(
    of: type[Record] | Callable[..., Any],
    *,
    since: int = 0,
    until: int = _LAST,
    null: int = NEVER,
    tag: int | None = None,
    default: object = (),
    each: str | tuple[str, ...] = (),
) -> Any:
    """An array of records, or of values: `array(Member)`, `array(string)`.

    `each` is for a response: where the whole request fails, this array has one item for each item
    of the request's field of that name, with the fields that both have (`failures.py`).
    """
    empty = [] if default == () else default
    kind, record = (Kind.STRUCT, of) if isinstance(of, type) else (of().kind, None)
    names = (each,) if isinstance(each, str) else each
    return Field(kind, empty, record, True, since, until, null, tag, names)


def struct(
    of: type[Record],
    *,
    since: int = 0,
    until: int = _LAST,
    null: int = NEVER,
    tag: int | None = None,
    default: object = None,
) -> Any:
    """One record within another."""
    return Field(Kind.STRUCT, default, of, False, since, until, null, tag)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        boolean, int8, int16, int32, int64, uint16, uint32, float64, uuid, string, bytes_,
        packed_int32, rest, array, struct,
    ),
)  # fmt: skip
class Table(type):
    """Makes a class of slots from a body of fields."""

    fields: dict[str, Field]

    def __new__(
        mcls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any
    ) -> Table:
        fields = {at: field for at, field in body.items() if isinstance(field, Field)}
        rest = {at: value for at, value in body.items() if at not in fields}
        rest["__slots__"] = tuple(fields)
        rest["fields"] = fields
        rest["_fields"] = tuple(fields)
        rest["_plans"] = {}
        made = super().__new__(mcls, name, bases, rest, **options)
        _messages.lay_out(made, {at: field.default for at, field in fields.items()})
        return made

    def __init__(
        cls, name: str, bases: tuple[type, ...], body: dict[str, Any], **options: Any
    ) -> None:
        super().__init__(name, bases, body)


class Record(_messages.Record, metaclass=Table):
    """A structure within a message.

    `tags=False` is for one within a message of kbroker's own that has no tagged fields, and no room
    for them, in any version.
    """

    _plans: ClassVar[dict[tuple[int, bool], Plan]]
    _has_tags: ClassVar[bool] = True

    def __init_subclass__(cls, *, tags: bool = True) -> None:
        super().__init_subclass__()
        cls._has_tags = tags

    @classmethod
    def plan(cls, version: int, *, flexible: bool) -> Plan:
        """How a version is laid out; made once. Two threads that make it make the same."""
        plan = cls._plans.get((version, flexible))
        if plan is None:
            plan = cls._plans[version, flexible] = cls._make_plan(version, flexible=flexible)
        return plan

    def encoded(self, version: int, *, flexible: bool) -> Encoded:
        """This record as a message of that version has it, for a message that repeats it."""
        return Encoded(self.plan(version, flexible=flexible).encode(self))

    @classmethod
    def _make_plan(cls, version: int, *, flexible: bool) -> Plan:
        steps, tagged = [], []
        for name, field in cls.fields.items():
            step = (name, *field.in_version(version, flexible=flexible))
            if field.tag is not None and field.since <= version <= field.until:
                tagged.append((field.tag, step))
            else:
                steps.append(step)
        tagged.sort(key=lambda row: row[0])
        return Plan(cls, steps, tagged, flexible=flexible and cls._has_tags)


class Message(Record):
    """The body of a request or a response."""

    api: ClassVar[ApiKey | None] = None
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible_since: ClassVar[int] = NEVER
    _by_version: ClassVar[dict[int, Plan]] = {}

    def __init_subclass__(
        cls,
        *,
        api: ApiKey | None = None,
        versions: tuple[int, int] = (0, 0),
        flexible: int = NEVER,
    ) -> None:
        super().__init_subclass__()
        cls.api = api
        cls.versions = versions
        cls.flexible_since = flexible if api is None else FLEXIBLE_SINCE[api]
        cls._by_version = {}

    @classmethod
    def plan_of(cls, version: int) -> Plan:
        """ValueError: the message has no such version."""
        plan = cls._by_version.get(version)
        if plan is None:
            if not cls.versions[0] <= version <= cls.versions[1]:
                raise ValueError(f"{cls.__module__}.{cls.__name__} has no version {version}")
            plan = cls.plan(version, flexible=version >= cls.flexible_since)
            cls._by_version[version] = plan
        return plan

    @classmethod
    def decode(cls, body: bytes, version: int) -> Self:
        """A message from a peer. ProtocolError: the bytes are none of this version."""
        return cls.plan_of(version).decode(body)  # type: ignore[return-value]  # its own class

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """As `decode`, from a reader that has stepped over the header."""
        return cls.plan_of(version).read(reader)  # type: ignore[return-value]  # its own class

    def encode(self, version: int) -> bytes:
        """ValueError, TypeError, OverflowError: this version cannot say what a field has."""
        return self.plan_of(version).encode(self)
