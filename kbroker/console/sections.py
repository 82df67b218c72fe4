"""What several pages need: lists that go on at the next address, notices of a refusal, and
the figures of this broker for a visitor who may have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kbroker.console.asked import ROWS_MAX, Asked
from kbroker.console.page import Cell, Notice, Tone, Value, to
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.metrics.model import Figures, Meter
from kbroker.security.rights import Operation

T = TypeVar("T")

NO_BROKER: Final = -1
# A list that has changed between two pages may have become shorter; so far may an address point.
_START_MAX: Final = 10_000_000
DENIED: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


class Piece(NamedTuple):
    """The rows of a list that a page has: where they begin, how many all are, the next address."""

    start: int
    end: int
    total: int
    next_path: str


def piece(
    asked: Asked, name: str, total: int, /, *path: str | int, **query: str | int | None
) -> Piece:
    """`name` is that of the list: the query has its first row as `NAME_from`. `path` and `query`
    are the page's own. Raises Refused for a start that is no number."""
    key = f"{name}_from"
    start = min(asked.number(key, 0, 0, _START_MAX), total)
    end = min(start + ROWS_MAX, total)
    following = to(*path, **query, **{key: end}) if end < total else ""
    return Piece(start, end, total, following)


def in_order(asked: Asked, some: Iterable[T], held: Piece, key: Callable[[T], Any]) -> list[T]:
    """The rows of the piece, of a list of any length."""
    from itertools import islice

    from kbroker.findings import pieces

    return list(islice(pieces.in_order(some, asked.pause, key), held.start, held.end))


def rows_of(
    asked: Asked, some: Sequence[T], row: Callable[[T], Sequence[Cell]]
) -> list[Sequence[Cell]]:
    """A row for each, with the pauses that a page owes."""
    from kbroker.findings.pieces import in_pieces

    return [row(each) for each in in_pieces(some, asked.pause)]


def refusal(subject: str, error: KafkaError | UserError) -> Notice:
    """In place of an answer that a broker has refused, or could not give. Raises it where it is the
    login that is refused: the visitor logs in again, whatever the page is."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        raise error
    return any_refusal(subject, error)


def any_refusal(subject: str, error: KafkaError | UserError) -> Notice:
    """For those who do not log in."""
    if isinstance(error, UserError):
        return Notice(Tone.BAD, f"{subject}: {error.cause}", error.fix)
    if error.code in DENIED:
        return Notice(Tone.WARN, f"{subject}: you may not see this ({error.code.name})")
    return Notice(Tone.BAD, f"{subject}: {error}", "see the brokers' logs")


def operations_of(asked: Asked) -> frozenset[Operation]:
    """What the visitor may do on the cluster: the rights that the figures of `here` need."""
    try:
        return asked.client.cluster_operations()
    except KafkaError:
        return frozenset()


def figures_of(asked: Asked, operations: frozenset[Operation]) -> Figures | None:
    """None: the visitor may not describe the cluster, or no broker makes this page."""
    if asked.here.node_id == NO_BROKER or Operation.DESCRIBE not in operations:
        return None
    return asked.here.figures()


def no_figures(asked: Asked) -> Notice:
    """Instead of them."""
    if asked.here.node_id == NO_BROKER:
        return Notice(Tone.QUIET, "a broker's own figures are in its console, at its admin port")
    return Notice(
        Tone.QUIET,
        f"figures of broker {asked.here.node_id}: you may not see them",
        "they need Describe on the cluster",
    )


def figure(figures: Figures | None, key: str, *labels: str) -> int | float | None:
    """Of a count that has one, its rate a second; None: it was not measured."""
    if figures is None:
        return None
    for found, value in figures.samples(key):
        if found == labels:
            if isinstance(value, Meter):
                return value.rate
            return value if isinstance(value, int | float) else None
    return None


def alarm(value: int | float | None) -> Cell:
    """A number that should be 0."""
    return Cell(value, tone=Tone.BAD if value else Tone.PLAIN)


def text(value: Value) -> Cell:
    return Cell(value)
