"""One transactional id's life, as the logs have it: for `kbroker txn explain`.

The id's partition of `__transaction_state` has a record for each step of its coordinator: a new
epoch, partitions that were added, the outcome, its completion. The partitions of data have the
first batch of each transaction and the marker that ends it. Both are read with ordinary fetches, so
that any broker will do. Compaction may have removed steps of long ago.

A partition of data is searched from the time at which the first of these transactions began, less
what producers hold a batch back for; what is beyond the bound of bytes is left out, with a line.
A batch has the time of its producer's clock, all others those of brokers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.cli.connect import refuse
from kbroker.coordinator.txn.records import RecordError, decode_key, decode_value, encode_key
from kbroker.coordinator.txn.states import State
from kbroker.errors import ErrorCode, InvariantError, KafkaError
from kbroker.peer.log_reading import headers, offset_at, pieces
from kbroker.peer.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from kbroker.peer.transactions import STATE_TOPIC
from kbroker.protocol.record_batch import CONTROL, TRANSACTIONAL, decode_batches
from kbroker.protocol.wire import ProtocolError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.coordinator.txn.image import TransactionImage
    from kbroker.peer.client import Client

# Before the coordinator has noted a transaction its first batch may have been made.
BEFORE_START_MS: Final = 60_000
# Of one partition of data.
SEARCHED_BYTES_MAX: Final = 256 * 1024 * 1024
_COMMIT: Final = 1
_MARKER_KEY: Final = struct.Struct(">hh")
_PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
_COMPLETE: Final = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


class Step(NamedTuple):
    """A record of the state topic; without an image the id was forgotten."""

    offset: int
    time_ms: int
    image: TransactionImage | None


class Event(NamedTuple):
    """`time_ms` is None where no time is known."""

    time_ms: int | None
    name: str
    producer_id: int
    epoch: int
    partition: TopicPartition | None = None
    offset: int | None = None
    text: str = ""

    @property
    def where(self) -> str:
        parts = []
        if self.partition is not None:
            parts.append(f"{self.partition.topic}/{self.partition.partition}")
        if self.offset is not None:
            parts.append(f"at {self.offset}")
        return " ".join([*parts, self.text]).strip()

    def document(self) -> dict[str, Any]:
        place = self.partition
        return {
            "time_ms": self.time_ms,
            "event": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "topic": None if place is None else place.topic,
            "partition": None if place is None else place.partition,
            "offset": self.offset,
            "text": self.text,
        }


class Life(NamedTuple):
    transactional_id: str
    state_partition: TopicPartition
    state: str
    events: list[Event]

    def document(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "state": self.state,
            "state_partition": self.state_partition.partition,
            "events": [each.document() for each in self.events],
        }


@dataclass(slots=True)
class Data:
    """A producer's part of one transaction in one partition."""

    producer_id: int
    epoch: int = -1
    first_offset: int = -1
    first_time_ms: int = -1
    records: int = 0
    marker_offset: int = -1
    marker_time_ms: int = -1
    committed: bool = False


@dataclass(slots=True)
class OneTransaction:
    """Steps from the first that added partitions to the one that completes the outcome."""

    steps: list[Step] = field(default_factory=list)
    data: dict[TopicPartition, list[Data]] = field(default_factory=dict)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset().union(*(_image(each).partitions for each in self.steps))

    @property
    def start_ms(self) -> int:
        return _image(self.steps[0]).start_ms

    def is_of(self, producer_id: int) -> bool:
        return any(_image(step).producer_id == producer_id for step in self.steps)

    @property
    def is_complete(self) -> bool:
        return _image(self.steps[-1]).state in _COMPLETE

    @property
    def marker_epoch(self) -> int | None:
        """None: the outcome is not decided, or its record is gone."""
        images = map(_image, self.steps)
        return next((each.epoch for each in images if each.state in _PREPARED), None)


def _image(step: Step) -> TransactionImage:
    if step.image is None:
        raise InvariantError("a transaction has images only")
    return step.image


def life_of(client: Client, transactional_id: str, last: int) -> Life | None:
    """The newest transactions; None: there is no record of the id."""
    place = _state_partition(client, transactional_id)
    if place is None:
        return None
    steps = list(_steps(client, place, transactional_id))
    if not steps:
        return None
    parts = _transactions(steps)
    chosen = [each for each in parts if isinstance(each, OneTransaction)][-last:]
    unread = _find_data(client, chosen)
    first = parts.index(chosen[0]) if chosen else 0
    # With the steps between two transactions, and the one before the first: its epoch.
    if first and isinstance(parts[first - 1], Step):
        first -= 1
    events = [event for part in parts[first:] for event in _events(part)]
    events += [Event(None, "not found", -1, -1, each, text=why) for each, why in unread]
    state = "forgotten" if steps[-1].image is None else steps[-1].image.state.label
    return Life(transactional_id, place, state, events)


# --- the state topic ------------------------------------------------------------------------------


def _state_partition(client: Client, transactional_id: str) -> TopicPartition | None:
    from kbroker.coordinator.runtime._shard_table import partition_for

    topic = client.metadata([STATE_TOPIC]).topics.get(STATE_TOPIC)
    if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    if topic.error is not ErrorCode.NONE:
        raise refuse(topic.error, f"topic '{STATE_TOPIC}'", None)
    return TopicPartition(STATE_TOPIC, partition_for(transactional_id, len(topic.partitions)))


def _steps(client: Client, place: TopicPartition, transactional_id: str) -> Iterator[Step]:
    key = encode_key(transactional_id)
    start = offset_at(client, place, EARLIEST_TIMESTAMP)
    for data in pieces(client, place, start, offset_at(client, place, LATEST_TIMESTAMP)):
        if key not in data:
            continue
        for batch in decode_batches(data):
            for record in batch.records:
                if batch.control or record.key != key:
                    continue
                try:
                    decode_key(record.key)
                    image = None if record.value is None else decode_value(record.value)
                except RecordError:
                    continue  # of a version that is not known here
                yield Step(record.offset, batch.max_timestamp_ms, image)


def _transactions(steps: Iterable[Step]) -> list[OneTransaction | Step]:
    """Transactions, and the steps outside of them, in their order."""
    parts: list[OneTransaction | Step] = []
    now: OneTransaction | None = None
    for step in steps:
        image = step.image
        if image is None or image.state is State.EMPTY:
            now = None
            parts.append(step)
            continue
        if now is None or (image.state is State.ONGOING and _is_over(now)):
            now = OneTransaction()
            parts.append(now)
        now.steps.append(step)
    return parts


def _is_over(transaction: OneTransaction) -> bool:
    return _image(transaction.steps[-1]).state is not State.ONGOING


# --- partitions of data ---------------------------------------------------------------------------


def _find_data(
    client: Client, transactions: list[OneTransaction]
) -> list[tuple[TopicPartition, str]]:
    """Fills in what the partitions have; answers those that could not be read to the end, and
    why."""
    unread: list[tuple[TopicPartition, str]] = []
    wanted: dict[TopicPartition, list[OneTransaction]] = {}
    for transaction in transactions:
        for place in sorted(transaction.partitions):
            wanted.setdefault(place, []).append(transaction)
    for place, its in sorted(wanted.items()):
        producers = {_image(step).producer_id for each in its for step in each.steps}
        try:
            found = list(_data_in(client, place, producers, min(each.start_ms for each in its)))
        except (KafkaError, ProtocolError) as error:
            unread.append((place, str(error)))
            continue
        for data in found:
            _assign(its, place, data)
        if any(place not in each.data for each in its if each.is_complete):
            unread.append((place, "the marker of a complete transaction"))
    return unread


def _assign(transactions: list[OneTransaction], place: TopicPartition, data: Data) -> None:
    owner = _owner(transactions, place, data)
    if owner is not None:
        owner.data.setdefault(place, []).append(data)


def _owner(
    transactions: list[OneTransaction], place: TopicPartition, data: Data
) -> OneTransaction | None:
    """A marker has the epoch of its outcome. Several outcomes may have it: then markers are in the
    order of transactions, and one that is older than the next of them is the last one's again. Data
    without a marker are of the newest transaction."""
    its = [each for each in transactions if each.is_of(data.producer_id)]
    if data.marker_offset < 0:
        return its[-1] if its and not its[-1].is_complete else None
    its = [each for each in its if each.marker_epoch == data.epoch]
    if len(its) == 1:
        return its[0]
    done = [at for at, each in enumerate(its) if place in each.data]
    following = done[-1] + 1 if done else 0
    if following < len(its) and its[following].start_ms <= data.marker_time_ms:
        return its[following]
    return its[following - 1] if following else None


def _data_in(
    client: Client, place: TopicPartition, producers: set[int], start_ms: int
) -> Iterator[Data]:
    answer = client.list_offsets({place: max(0, start_ms - BEFORE_START_MS)})[place]
    if answer.error is not ErrorCode.NONE:
        raise refuse(answer.error, str(place), None)
    end = offset_at(client, place, LATEST_TIMESTAMP)
    # Only data have times that are looked up: a transaction without them is after the last record.
    start = answer.offset if answer.offset >= 0 else _last_data(client, place, end)
    now: dict[int, Data] = {}
    for piece in pieces(client, place, start, end, SEARCHED_BYTES_MAX):
        for batch in headers(piece):
            if batch.producer_id not in producers or not batch.attributes & TRANSACTIONAL:
                continue
            data = now.setdefault(batch.producer_id, Data(batch.producer_id))
            data.epoch = batch.epoch
            if batch.attributes & CONTROL:
                data.marker_offset = batch.offset
                data.marker_time_ms = batch.time_ms
                data.committed = _is_commit(piece[batch.begin : batch.end])
                yield now.pop(batch.producer_id)
                continue
            if data.first_offset < 0:
                data.first_offset, data.first_time_ms = batch.offset, batch.time_ms
            data.records += batch.records
    yield from now.values()


def _last_data(client: Client, place: TopicPartition, end: int) -> int:
    """Markers after the newest data are few, so they are searched from there on."""
    newest = client.list_offsets({place: MAX_TIMESTAMP})[place]
    if newest.error is ErrorCode.NONE and newest.offset >= 0:
        return newest.offset
    return max(0, end - 1)


def _is_commit(marker: bytes) -> bool:
    (batch,) = decode_batches(marker)
    key = batch.records[0].key if batch.records else None
    if key is None or len(key) < _MARKER_KEY.size:
        raise ProtocolError("a marker without a type")
    return bool(_MARKER_KEY.unpack_from(key)[1] == _COMMIT)


# --- what is printed ------------------------------------------------------------------------------


def _events(part: OneTransaction | Step) -> Iterator[Event]:
    if isinstance(part, Step):
        image = part.image
        if image is None:
            yield Event(part.time_ms, "forgotten", -1, -1)
        else:
            text = f"timeout {image.timeout_ms} ms"
            yield Event(part.time_ms, "epoch given", image.producer_id, image.epoch, text=text)
        return
    known: frozenset[TopicPartition] = frozenset()
    first_data = [(place, data) for place, all_ in sorted(part.data.items()) for data in all_]
    has_named_data = False
    for step in part.steps:
        image = _image(step)
        pair = image.producer_id, image.epoch
        if image.state is State.ONGOING:
            for place in sorted(image.partitions - known):
                yield Event(step.time_ms, "partition added", *pair, place)
            known |= image.partitions
            continue
        if not has_named_data:
            has_named_data = True
            yield from _first_batches(first_data)
        outcome = image.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
        if image.state in _PREPARED:
            yield Event(step.time_ms, f"prepare {_word(outcome)}", *pair)
            yield from _markers(first_data)
        else:
            yield Event(step.time_ms, f"complete {_word(outcome)}", *pair)
    if not has_named_data:
        yield from _first_batches(first_data)


def _word(committed: bool) -> str:
    return "commit" if committed else "abort"


def _first_batches(found: Iterable[tuple[TopicPartition, Data]]) -> Iterator[Event]:
    for place, data in found:
        if data.first_offset >= 0:
            text = f"{data.records} record" + ("s" if data.records != 1 else "")
            yield Event(
                data.first_time_ms, "first batch", data.producer_id, data.epoch, place,
                data.first_offset, text,
            )  # fmt: skip


def _markers(found: Iterable[tuple[TopicPartition, Data]]) -> Iterator[Event]:
    for place, data in found:
        if data.marker_offset >= 0:
            yield Event(
                data.marker_time_ms, f"marker {_word(data.committed)}", data.producer_id,
                data.epoch, place, data.marker_offset,
            )  # fmt: skip
