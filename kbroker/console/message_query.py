"""The address of the messages page: which records of a topic, in which order, drawn how.

Place in the flow: `pages/messages.py`, `message_tail.py` and `message_download.py` read one from
what is asked, and make links to other ones. With `admin.console.messages=off` there is none, and
with `keys` none that looks at values or headers: a filter would tell what the page hides. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kbroker.console.asked import ROWS_MAX, Refused
from kbroker.console.drawing import Form
from kbroker.console.page import Field, to
from kbroker.console.search import Match, Values, Wanted
from kbroker.errors import UsageError
from kbroker.findings.moments import MOMENT_HINT, parse_moment, shown_moment
from kbroker.peer.isolation import READ_COMMITTED, READ_UNCOMMITTED

if TYPE_CHECKING:
    from kbroker.console.asked import Asked

Choice = TypeVar("Choice", bound=StrEnum)

ROWS_DEFAULT: Final = 50
# Read for one page, each with fetches of its own; more partitions are further pages.
PARTITIONS_MAX: Final = 100
_TEXT_CHARS_MAX: Final = 4_000
_NUMBER_DIGITS_MAX: Final = 19
_OFFSET_MAX: Final = 2**63 - 1
_PARTITION_MAX: Final = 2**31 - 1


class Order(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


class Isolation(StrEnum):
    UNCOMMITTED = "read_uncommitted"
    COMMITTED = "read_committed"
    ALL = "all"  # the records of aborted transactions, and the markers

    @property
    def number(self) -> int:
        return READ_COMMITTED if self is Isolation.COMMITTED else READ_UNCOMMITTED


class Partitions(NamedTuple):
    """Those from `first` to `last`."""

    first: int = 0
    last: int = _PARTITION_MAX

    def __str__(self) -> str:
        if self == Partitions():
            return ""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


class MessageQuery(NamedTuple):
    """`offset`: where the reading begins. `positions`: the same for each partition, of a page that
    goes on."""

    topic: str
    partitions: Partitions = Partitions()
    order: Order = Order.NEWEST
    offset: int | None = None
    wanted: Wanted = Wanted()
    isolation: Isolation = Isolation.UNCOMMITTED
    form: Form = Form.AUTO
    rows: int = ROWS_DEFAULT
    positions: Mapping[int, int] = {}

    @property
    def newest(self) -> bool:
        return self.order is Order.NEWEST

    def path(self, *parts: str) -> str:
        """Of the messages page, or of a part of it; what is as it would be anyway is left out."""
        plain, wanted = MessageQuery(self.topic), self.wanted
        values: dict[str, str] = {
            "partition": str(self.partitions),
            "order": self.order,
            "offset": "" if self.offset is None else str(self.offset),
            "since": _moment_text(wanted.since_ms),
            "until": _moment_text(wanted.until_ms),
            "key": wanted.key,
            "value": wanted.value,
            "header": wanted.header,
            "match": wanted.match,
            "values": wanted.values,
            "isolation": self.isolation,
            "draw": self.form,
            "rows": str(self.rows),
            "at": ",".join(f"{each}:{at}" for each, at in sorted(self.positions.items())),
        }
        usual = {plain.order, plain.wanted.match, plain.wanted.values, plain.isolation, plain.form}
        query = {
            name: value
            for name, value in values.items()
            if value and not (isinstance(value, StrEnum) and value in usual)
        }
        if self.rows == ROWS_DEFAULT:
            del query["rows"]
        return to("topics", self.topic, "messages", *parts, **query)


def read_query(asked: Asked) -> MessageQuery:
    """Refused: a value is out of bounds, or messages are not to be seen."""
    if asked.messages == "off":
        raise Refused(
            "messages are not listed: admin.console.messages is off",
            "set admin.console.messages to keys or on",
            status=403,
        )
    wanted = Wanted(
        key=_text(asked, "key"),
        value=_text(asked, "value"),
        header=_text(asked, "header"),
        match=chosen(asked, "match", Match.CONTAINS),
        values=chosen(asked, "values", Values.ANY),
        since_ms=_moment(asked, "since"),
        until_ms=_moment(asked, "until"),
    )
    if asked.messages != "on" and (wanted.value or wanted.header or wanted.values != Values.ANY):
        raise Refused(
            "values and headers are not searched: admin.console.messages is keys",
            "look for a key, or set admin.console.messages to on",
            status=403,
        )
    offset = asked.number("offset", -1)
    return MessageQuery(
        topic=asked.path["topic"],
        partitions=_partitions(_text(asked, "partition")),
        order=chosen(asked, "order", Order.NEWEST),
        offset=None if offset < 0 else offset,
        wanted=wanted,
        isolation=chosen(asked, "isolation", Isolation.UNCOMMITTED),
        form=chosen(asked, "draw", Form.AUTO),
        rows=asked.number("rows", ROWS_DEFAULT, 1, ROWS_MAX),
        positions=_positions(_text(asked, "at")),
    )


def chosen(asked: Asked, name: str, default: Choice) -> Choice:
    """One of the choices of an enumeration."""
    text = asked.query.get(name) or default
    try:
        return type(default)(text)
    except ValueError:
        raise Refused(f"{name} is none of {', '.join(type(default))}") from None


def _text(asked: Asked, name: str) -> str:
    text = asked.query.get(name, "")
    if len(text) > _TEXT_CHARS_MAX:
        raise Refused(f"{name} has more than {_TEXT_CHARS_MAX} characters")
    return text


def _moment(asked: Asked, name: str) -> int | None:
    text = _text(asked, name)
    if not text.strip():
        return None
    try:
        return parse_moment(text)
    except (UsageError, OverflowError):
        raise Refused(f"{name} is no moment", MOMENT_HINT) from None


def _moment_text(moment_ms: int | None) -> str:
    return "" if moment_ms is None else shown_moment(moment_ms)


def _partitions(text: str) -> Partitions:
    """`3`, or `0-9`; empty: all."""
    text = text.strip()
    if not text:
        return Partitions()
    first, dash, last = text.partition("-")
    low = _number(first, _PARTITION_MAX)
    high = _number(last, _PARTITION_MAX) if dash else low
    if low is None or high is None or high < low:
        raise Refused("partition names no partitions", "write a number, or two as 0-9")
    return Partitions(low, high)


def _positions(text: str) -> dict[int, int]:
    """`0:1234,1:77`"""
    positions: dict[int, int] = {}
    for pair in text.split(",") if text else ():
        partition, _, offset = pair.partition(":")
        number, at = _number(partition, _PARTITION_MAX), _number(offset, _OFFSET_MAX)
        if number is None or at is None or len(positions) >= PARTITIONS_MAX:
            raise Refused("at names no positions", "follow the links of the page")
        positions[number] = at
    return positions


def _number(text: str, most: int) -> int | None:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= _NUMBER_DIGITS_MAX):
        return None
    number = int(text)
    return number if number <= most else None


def query_fields(query: MessageQuery, *, with_values: bool) -> Sequence[Field]:
    """The form by which a visitor changes the query."""
    wanted = query.wanted
    offset = "" if query.offset is None else str(query.offset)
    fields = [
        Field("partition", "Partition", str(query.partitions), help="a number, or two as 0-9"),
        Field("order", "Order", query.order, options=_options(Order)),
        Field("offset", "Begin at offset", offset, kind="number"),
        Field("since", "Since", _moment_text(wanted.since_ms), help="UTC, 2026-11-21T14:00:00"),
        Field("until", "Until", _moment_text(wanted.until_ms), help="UTC"),
        Field("key", "Key", wanted.key, kind="search"),
    ]
    if with_values:
        fields += [
            Field("value", "Value", wanted.value, kind="search"),
            Field("header", "Header", wanted.header, kind="search", help="as name=value"),
            Field("values", "Values", wanted.values, options=_options(Values)),
        ]
    return [
        *fields,
        Field("match", "Match", wanted.match, options=_options(Match)),
        Field("isolation", "Isolation", query.isolation, options=_options(Isolation)),
        Field("draw", "Draw as", query.form, options=_options(Form)),
        Field("rows", "Rows", str(query.rows), kind="number", help=f"{ROWS_MAX} at most"),
    ]


def _options(choices: type[StrEnum]) -> Sequence[tuple[str, str]]:
    return [(choice.value, choice.value.replace("_", " ")) for choice in choices]
