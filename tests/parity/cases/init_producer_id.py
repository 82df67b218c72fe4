"""InitProducerId (22): a fresh id for each producer, and epochs of transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases import _transactions as transactions
from tests.parity.cases._shapes import add_shapes
from tests.parity.cases._transactions import Pair, Producer, log_of, state_of
from tests.parity.cases.add_partitions_to_txn import PAIRS as OTHER_PAIRS
from tests.parity.requests import build
from tests.parity.talk import Talk

VERSIONS = range(6)
WITH_ID = range(3, 6)
SOME = (0, 2, 5)  # the older, the newer, with an identity

book = Book(setup="coordinators")
cases = book.cases


def ask(
    version: int,
    name: str | None = None,
    *,
    timeout: int = 60_000,
    producer_id: int = -1,
    epoch: int = -1,
) -> Any:
    return build(
        ApiKey.INIT_PRODUCER_ID,
        version,
        transactional_id=name,
        transaction_timeout=timeout,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


@book.case("three times", versions=VERSIONS)
def three(talk: Talk, version: int) -> None:
    for _ in range(3):
        talk.ask(ask(version))


@book.case("from two connections", versions=SOME)
def two_connections(talk: Talk, version: int) -> None:
    other = talk.connect()
    for _ in range(2):
        talk.ask(ask(version))
        other.ask(ask(version))


@book.case("twenty in one piece", versions=SOME)
def pipelined(talk: Talk, version: int) -> None:
    talk.main.hold()
    for _ in range(20):
        talk.send(ask(version))
    talk.main.release()
    ids = [talk.receive(record=False).producer_id for _ in range(20)]
    talk.note("different", len(set(ids)))


@book.case("a time-out", versions=SOME, over={str(ms): ms for ms in (0, -1, 1, 900_001, 2**31 - 1)})
def timeout(talk: Talk, version: int, timeout_ms: int) -> None:
    talk.ask(ask(version, timeout=timeout_ms))


@book.case(
    "an id and an epoch",
    versions=WITH_ID,
    over={
        f"{i} and {e}": (i, e)
        for i, e in ((5, 3), (5, -1), (-1, 3), (0, 0), (-2, -2), (2**63 - 1, 32_767), (-2, 0))
    },
)
def brought(talk: Talk, version: int, identity: tuple[int, int]) -> None:
    talk.ask(ask(version, producer_id=identity[0], epoch=identity[1]))


@book.case("its own id and epoch", versions=WITH_ID)
def own(talk: Talk, version: int) -> None:
    got = talk.ask(ask(version))
    talk.ask(ask(version, producer_id=got.producer_id, epoch=got.producer_epoch))
    talk.ask(ask(version, producer_id=got.producer_id, epoch=got.producer_epoch + 1))


@book.case("an empty transactional id", versions=SOME)
def empty_name(talk: Talk, version: int) -> None:
    talk.ask(ask(version, ""))


@book.case("a transactional id", versions=VERSIONS)
def transactional(talk: Talk, version: int) -> None:
    """With an id of its own for every version, on both sides."""
    talk.ask(ask(version, talk.name("tx")))


@book.case("a transactional id that brings half an identity", versions=WITH_ID)
def half(talk: Talk, version: int) -> None:
    talk.ask(ask(version, talk.name("tx"), producer_id=5))
    talk.ask(ask(version, talk.name("tx"), epoch=5))


@book.case("a transactional id with a bad time-out", versions=SOME)
def bad_timeout(talk: Talk, version: int) -> None:
    for timeout_ms in (0, -1, 900_001):
        talk.ask(ask(version, talk.name("tx"), timeout=timeout_ms))


# --- with a transactional id that is in use -------------------------------------------------------


@book.case("a transactional id again and again", versions=VERSIONS)
def renewed(talk: Talk, version: int) -> None:
    """Each time with another epoch and time-out, the outcome before or not."""
    topic, one = talk.topic(), Producer(talk)
    talk.ask(transactions.init(version, one.name, timeout_ms=70_000))
    state_of(talk, one.name)
    one.renew()
    one.begin(topic)
    one.write(topic)
    one.commit()
    talk.ask(transactions.init(version, one.name))
    state_of(talk, one.name)


@book.case("an open transaction", versions=VERSIONS)
def open_before(talk: Talk, version: int) -> None:
    """Is aborted, which the client waits for."""
    topic, one = talk.topic(), Producer(talk)
    one.begin(topic)
    one.write(topic)
    before = one.pair
    talk.ask(transactions.init(version, one.name))
    one.over()
    state_of(talk, one.name)
    talk.ask(transactions.init(version, one.name))
    state_of(talk, one.name)
    log_of(talk, topic)
    if version in WITH_ID:
        talk.ask(transactions.init(version, one.name, before))


PAIRS = OTHER_PAIRS | {"its own pair": lambda own: own}


@book.case("with a pair", versions=WITH_ID, over=PAIRS)
def with_pair(talk: Talk, version: int, of: Callable[[Pair], Pair]) -> None:
    """Twice before a transaction, within one, and after its outcome."""
    topic, one = talk.topic(), Producer(talk)
    one.renew()
    pair = of(one.pair)
    for _ in range(2):
        talk.ask(transactions.init(version, one.name, pair))
        state_of(talk, one.name)
    one.renew()
    one.begin(topic)
    talk.ask(transactions.init(version, one.name, of(one.pair)))
    one.over()
    state_of(talk, one.name)
    one.renew()
    one.begin(topic)
    one.commit()
    talk.ask(transactions.init(version, one.name, of(one.pair)))
    state_of(talk, one.name)


@book.case("with a pair, of an id that is unknown", versions=WITH_ID)
def unknown_with_pair(talk: Talk, version: int) -> None:
    got = talk.ask(ask(version))
    talk.ask(transactions.init(version, talk.name("tx"), Pair(got.producer_id, 0)))
    state_of(talk, talk.name("tx"))


@book.case("two processes that begin", versions=WITH_ID)
def two_processes(talk: Talk, version: int) -> None:
    """The first one has lost its id, whatever it tries."""
    topic, one = talk.topic(), Producer(talk)
    first = one.pair
    one.renew()
    one.begin(topic)
    talk.ask(transactions.init(version, one.name, first))
    one.over()
    state_of(talk, one.name)


add_shapes(book, ApiKey.INIT_PRODUCER_ID, VERSIONS, lambda talk, version: ask(version, ""))
