"""Transactional ids as their coordinator knows them: made, described, listed by state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from perf.client import Client, ClientError
from perf.requests import INIT_PRODUCER_ID
from perf.transactions.producer import INIT_VERSION, NOT_YET, TRANSACTION_TIMEOUT_MS, Steps
from perf.wire import Writer, frame, request_header

STATE_TOPIC: Final = "__transaction_state"
STATE_PARTITIONS: Final = 50
# The defaults of both kinds of broker, which a single node of Apache Kafka is not given here.
REPLICATED: Final[Mapping[str, object]] = {
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}
DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 65, 66


class Pair(NamedTuple):
    """What a producer writes with."""

    producer_id: int
    epoch: int


def made(name: str, pairs: dict[str, Pair]) -> Steps:
    """InitProducerId, until there is a pair."""
    w = Writer(flexible=True).string(name).put("iqh", TRANSACTION_TIMEOUT_MS, -1, -1).tags()
    data = frame(request_header(INIT_PRODUCER_ID, INIT_VERSION), bytes(w.data))
    while True:
        r = yield data
        r.get("i")
        code, producer_id, epoch = r.get("h"), r.get("q"), r.get("h")
        if not code:
            pairs[name] = Pair(producer_id, epoch)
            return
        if code not in NOT_YET:
            raise ClientError(f"InitProducerId of {name}", code)


def states(client: Client, names: Collection[str]) -> dict[str, str]:
    """Of ids that this broker coordinates. ClientError of the first that it does not."""
    w = Writer(flexible=True).count(len(names))
    for name in names:
        w.string(name)
    r = client.ask(DESCRIBE_TRANSACTIONS, 0, bytes(w.tags().data))
    r.get("i")
    found = {}
    for _ in range(r.count()):
        code, name, state = r.get("h"), r.string(), r.string()
        if code:
            raise ClientError(f"transactional id {name}", code)
        found[name] = state
        r.take(22)  # timeout, start, producer id and epoch
        for _ in range(r.count()):
            r.string()
            r.take(4 * r.count())
            r.tags()
        r.tags()
    return found


def served(client: Client, names: Collection[str]) -> bool:
    """Whether this broker answers for all of these. ClientError where one is lost."""
    try:
        states(client, names)
    except ClientError as error:
        if error.code not in NOT_YET:
            raise
        return False
    return True


def listed(client: Client, in_states: Collection[str]) -> int:
    """How many ids of this broker are in one of these states."""
    w = Writer(flexible=True).count(len(in_states))
    for state in in_states:
        w.string(state)
    r = client.ask(LIST_TRANSACTIONS, 0, bytes(w.count(0).tags().data))
    r.get("i")
    if code := r.get("h"):
        raise ClientError("ListTransactions", code)
    for _ in range(r.count()):
        r.string()
    return r.count()


def partition_of(name: str, partitions: int = STATE_PARTITIONS) -> int:
    """Of the state topic: by the hash of Java's String, of ASCII."""
    code = 0
    for each in name.encode("ascii"):
        code = (31 * code + each) & 0xFFFFFFFF
    return abs(code - (1 << 32) if code >> 31 else code) % partitions


def one_of_each(names: Iterable[str], partitions: int = STATE_PARTITIONS) -> list[str]:
    """The first id of each partition that has any."""
    found: dict[int, str] = {}
    for name in names:
        found.setdefault(partition_of(name, partitions), name)
        if len(found) == partitions:
            break
    return list(found.values())
