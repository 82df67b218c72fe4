"""Transactions: their requests, producers in a certain state, and the recorded view of a log.

A `Producer` has a transactional id of the case's own. Its methods (`begin`, `write`, `commit`)
prepare a case and are not recorded. A case records the requests that it is about, which the
functions here make for any pair of producer id and epoch.

Markers are written after EndTxn is answered, so a case waits for them (`over`): an answer in
between would depend on the machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kbroker.types import ApiKey
from tests.parity.data import T0, changed, fetch, part, produce, records
from tests.parity.requests import build
from tests.parity.talk import Talk, View
from tests.support.record_batches import ParsedBatch, build_batch, parse_batches

INIT: Final = range(6)
ADD: Final = range(4)  # as clients send it
ADD_BY_BROKERS: Final = range(4, 6)
ADD_OFFSETS: Final = range(5)
END: Final = range(6)
END_AND_RAISE: Final = 5
MARKERS: Final = range(1, 3)
COMMIT_OFFSETS: Final = range(6)

TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
TIMEOUT_MS: Final = 600_000
OFFSETS_TOPIC: Final = "__consumer_offsets"
STATE_TOPIC: Final = "__transaction_state"
# Earlier times are those of records that a case has made.
_CLOCK_MS_MIN: Final = 1_760_000_000_000

Partitions = Mapping[str, Sequence[int]] | Sequence[tuple[str, Sequence[int]]]


class Pair(NamedTuple):
    producer_id: int
    epoch: int

    def later(self, epochs: int = 1) -> Pair:
        return Pair(self.producer_id, self.epoch + epochs)


NO_PAIR: Final = Pair(-1, -1)


def topics_of(partitions: Partitions) -> list[dict[str, Any]]:
    pairs = partitions.items() if isinstance(partitions, Mapping) else partitions
    return [{"name": name, "partitions": list(indexes)} for name, indexes in pairs]


# --- requests -------------------------------------------------------------------------------------


def init(version: int, name: str | None, pair: Pair = NO_PAIR, timeout_ms: int = TIMEOUT_MS) -> Any:
    return build(
        ApiKey.INIT_PRODUCER_ID,
        version,
        transactional_id=name,
        transaction_timeout=timeout_ms,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
    )


def add(version: int, name: str, pair: Pair, partitions: Partitions) -> Any:
    """Up to version 3."""
    return build(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=pair.producer_id,
        v3_and_below_producer_epoch=pair.epoch,
        v3_and_below_topics=topics_of(partitions),
    )


def added(name: str, pair: Pair, partitions: Partitions, *, verify: bool = False) -> dict[str, Any]:
    """An entry of `add_many`."""
    return {
        "transactional_id": name,
        "producer_id": pair.producer_id,
        "producer_epoch": pair.epoch,
        "verify_only": verify,
        "topics": topics_of(partitions),
    }


def add_many(version: int, *entries: Mapping[str, Any]) -> Any:
    """From version 4 on."""
    return build(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=entries)


def add_offsets(version: int, name: str, pair: Pair, group: str) -> Any:
    return build(
        ApiKey.ADD_OFFSETS_TO_TXN,
        version,
        transactional_id=name,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        group_id=group,
    )


def end(version: int, name: str, pair: Pair, *, committed: bool) -> Any:
    return build(
        ApiKey.END_TXN,
        version,
        transactional_id=name,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        committed=committed,
    )


def marker(
    pair: Pair,
    partitions: Partitions,
    *,
    committed: bool = True,
    coordinator_epoch: int = 0,
    level: int = 0,
) -> dict[str, Any]:
    """An entry of `markers`; `level` is the transaction version, which version 1 has not."""
    pairs = partitions.items() if isinstance(partitions, Mapping) else partitions
    return {
        "producer_id": pair.producer_id,
        "producer_epoch": pair.epoch,
        "transaction_result": committed,
        "coordinator_epoch": coordinator_epoch,
        "transaction_version": level,
        "topics": [{"name": name, "partition_indexes": list(each)} for name, each in pairs],
    }


def markers(version: int, *entries: Mapping[str, Any]) -> Any:
    return build(ApiKey.WRITE_TXN_MARKERS, version, markers=entries)


def describe(*names: str) -> Any:
    return build(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=names)


def describe_producers(*partitions: tuple[str, int]) -> Any:
    return build(
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        topics=[{"name": name, "partition_indexes": [index]} for name, index in partitions],
    )


def commit_offsets(
    version: int,
    name: str,
    pair: Pair,
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    *,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> Any:
    parts = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
        for index, offset in offsets.items()
    ]
    return build(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id=name,
        group_id=group,
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[{"name": topic, "partitions": parts}],
    )


def in_transaction(pair: Pair, sequence: int, *values: bytes, **how: Any) -> bytes:
    """A transactional batch, `at` a time."""
    return build_batch(
        records(*(values or (b"%d" % sequence,)), at=how.pop("at", T0)),
        producer_id=pair.producer_id,
        producer_epoch=pair.epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
        **how,
    )


def control_batch(pair: Pair) -> bytes:
    """A marker, as no client may send one."""
    return changed(
        in_transaction(pair, 0, b"\x00\x00\x00\x00\x00\x00"),
        attributes=TRANSACTIONAL | CONTROL,
        base_sequence=-1,
    )


# --- producers ------------------------------------------------------------------------------------


class Producer:
    """A transactional id of the case, with the pair that its client would have."""

    def __init__(self, talk: Talk, name: str = "tx", *, timeout_ms: int = TIMEOUT_MS) -> None:
        self.talk = talk
        self.name = talk.name(name)
        self.pair = NO_PAIR
        self.sequences: dict[tuple[str, int], int] = {}
        self.renew(timeout_ms)

    def renew(self, timeout_ms: int = TIMEOUT_MS) -> Pair:
        """As a process that begins: an open transaction is aborted first."""
        answers: list[Any] = []

        def ready() -> bool:
            answers.append(self.talk.quietly(init(4, self.name, timeout_ms=timeout_ms)))
            return bool(answers[-1].error_code.value == 0)

        self.talk.until(ready)
        self.pair = Pair(answers[-1].producer_id, answers[-1].producer_epoch)
        self.talk.aliases.of("producer", self.pair.producer_id)
        self.sequences.clear()
        return self.pair

    def begin(self, topic: str, *indexes: int) -> None:
        """Add partitions."""
        request = add(3, self.name, self.pair, {topic: indexes or (0,)})
        (result,) = self.talk.quietly(request).results_by_topic_v3_and_below
        codes = [each.partition_error_code.value for each in result.results_by_partition]
        if any(codes):
            raise AssertionError(f"not added: {codes}")

    def write(self, topic: str, index: int = 0, *values: bytes, **how: Any) -> None:
        """A batch in a partition that was added."""
        place = topic, index
        sequence = self.sequences.get(place, 0)
        data = in_transaction(self.pair, sequence, *values, **how)
        self.sequences[place] = sequence + max(len(values), 1)
        stored_in_transaction(self.talk, self.name, topic, index, data)

    def end(self, *, committed: bool, version: int = 4) -> None:
        """Also wait until all markers are written.

        In a millisecond of their own: of two with one time the first would have the greatest, and a
        fast broker writes several in one.
        """
        _await_next_millisecond()
        request = end(version, self.name, self.pair, committed=committed)
        answer = self.talk.quietly(request)
        if answer.error_code.value:
            raise AssertionError(f"not ended: {answer}")
        self.over()
        if version >= END_AND_RAISE:
            self.pair = Pair(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()

    def commit(self, version: int = 4) -> None:
        self.end(committed=True, version=version)

    def abort(self, version: int = 4) -> None:
        self.end(committed=False, version=version)

    def over(self) -> None:
        self.talk.until(lambda: not self.state().startswith("Prepare"))

    def state(self) -> str:
        (found,) = self.talk.quietly(describe(self.name)).transaction_states
        return str(found.transaction_state)


def _await_next_millisecond() -> None:
    now_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now_ms:
        pass


def stored_in_transaction(talk: Talk, name: str, topic: str, index: int, data: bytes) -> None:
    request = produce(talk, 9, (topic, {index: data}), transactional_id=name)
    (answer,) = talk.quietly(request).responses
    (result,) = answer.partition_responses
    if result.error_code.value:
        raise AssertionError(f"not stored: {result}")


# --- views ----------------------------------------------------------------------------------------


def with_clock(data: Any) -> Any:
    """The answer with the broker's times as a word."""
    if isinstance(data, dict):
        return {key: _clock(key, value) for key, value in data.items()}
    if isinstance(data, list):
        return [with_clock(item) for item in data]
    return data


def _clock(key: str, value: Any) -> Any:
    of_clock = key in ("transaction_start_time", "last_timestamp", "log_append_time", "timestamp")
    if of_clock and isinstance(value, int) and value > _CLOCK_MS_MIN:
        return "now"
    return with_clock(value)


def read(talk: Talk) -> View:
    """A fetch with its batches in words, a producer by the name that the case has for it."""

    def view(data: Any) -> Any:
        if isinstance(data, dict):
            return {
                key: _batches(talk, bytes.fromhex(value))
                if key == "records" and value
                else view(value)
                for key, value in data.items()
            }
        return [view(item) for item in data] if isinstance(data, list) else data

    return view


def _batches(talk: Talk, data: bytes) -> list[str]:
    return [_in_words(talk, each) for each in parse_batches(data)]


def _in_words(talk: Talk, found: ParsedBatch) -> str:
    at = f"{found.base_offset}-{found.last_offset}"
    by = ""
    if found.producer_id >= 0:
        producer = talk.aliases.of("producer", found.producer_id)
        by = f" by {producer}, epoch {found.producer_epoch}, sequence {found.base_sequence}"
    kinds = [
        word
        for bit, word in ((TRANSACTIONAL, "transactional"), (CONTROL, "control"))
        if found.attributes & bit
    ]
    contents = [[(r.key or b"").hex(), (r.value or b"").hex()] for r in found.records]
    if not found.attributes & CONTROL:
        contents = [(r.value or b"").decode() for r in found.records]
    return f"{at} {' '.join(kinds)}{by}: {json.dumps(contents)}"


def log_of(talk: Talk, topic: str, index: int = 0) -> None:
    """Record the partition's records as a read_committed consumer gets them."""
    asked = fetch(talk, 12, (topic, [part(index)]), isolation=1)
    talk.ask(asked, view=read(talk))


def state_of(talk: Talk, *names: str) -> None:
    """Record the coordinator's description of these transactional ids."""
    talk.ask(describe(*names), view=with_clock)
