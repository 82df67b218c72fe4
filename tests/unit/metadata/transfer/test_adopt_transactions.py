"""Transactions that are in logs of another broker: the aborted ones stay so, open ones end."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from kbroker.cli.main import main
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.coordinator.txn._images import encode_value
from kbroker.coordinator.txn.image import TransactionImage
from kbroker.coordinator.txn.records import decode_key, decode_value, encode_key
from kbroker.coordinator.txn.states import State
from kbroker.errors import UserError
from kbroker.log.adopted import Copied
from kbroker.log.adopted_ends import Ended
from kbroker.log.engine import producer_snapshots
from kbroker.log.engine._results import ProducerEntry
from kbroker.log.engine.checkpoints import LOG_START_FILE, RECOVERY_POINT_FILE
from kbroker.log.looking.dump import AbortedTransaction, aborted_transactions
from kbroker.log.looking.verify import verify
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.types import TopicPartition
from tests.support.kafka_transactions import LEVELS, partition_files, state_log
from tests.support.record_batches import ParsedBatch, parse_batches
from tests.support.snapshots import packed
from tests.unit.metadata.transfer.foreign import (
    ABORT,
    COMMIT,
    EPOCH,
    GROUPS,
    NOW_MS,
    OFFSETS,
    TRANSACTIONAL,
    WORDS_0,
    adopt,
    batch,
    contents,
    marker,
    segments,
)
from tests.unit.metadata.transfer.test_adopt import configs_of, next_producer_id

STATES: Final = TopicPartition("__transaction_state", 0)
STATES_ID: Final = UUID(int=30)
INSIDE: Final = batch(0, 3, attributes=TRANSACTIONAL, producer=9)
NEXT: Final = batch(4, attributes=TRANSACTIONAL, producer=9)


def aborted(copy: Copied) -> list[AbortedTransaction]:
    files = sorted(copy.path.glob("*.txnindex"))
    return [each for path in files for each in aborted_transactions(path)]


def batches(copy: Copied) -> list[ParsedBatch]:
    assert verify(copy.path).damage == []
    return parse_batches(b"".join(p.read_bytes() for p in sorted(copy.path.glob("*.log"))))


def ends(copy: Copied) -> list[tuple[int, int, int, int]]:
    """Of each marker: offset, producer id and epoch, outcome."""
    found = []
    for each in batches(copy):
        if each.attributes & 0x20:
            outcome = struct.unpack(">hh", each.records[0].key or b"")[1]
            found.append((each.base_offset, each.producer_id, each.producer_epoch, outcome))
    return found


# --- In a log alone -------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("data_of", "outcomes", "hidden"),
    [
        (INSIDE + marker(3, COMMIT), [COMMIT], []),
        (INSIDE + marker(3, ABORT), [ABORT], [(0, 3)]),
        (INSIDE + marker(3, ABORT) + NEXT, [ABORT, ABORT], [(0, 3), (4, 5)]),
        (INSIDE, [ABORT], [(0, 3)]),
        (INSIDE + marker(3, COMMIT, producer=8), [COMMIT, ABORT], [(0, 4)]),
        (INSIDE + marker(3, COMMIT) + NEXT, [COMMIT, ABORT], [(4, 5)]),
        (INSIDE + marker(3, COMMIT)[:-1], [ABORT], [(0, 3)]),
    ],
    ids=["committed", "aborted", "aborted and open", "open", "of another", "committed and open",
         "a torn marker"],
)  # fmt: skip
def test_each_transaction_has_its_end(
    data: Path,
    tmp_path: Path,
    data_of: bytes,
    outcomes: list[int],
    hidden: list[tuple[int, int]],
    clean: bool,
) -> None:
    torn = len(data_of) == len(INSIDE + marker(3, COMMIT)) - 1
    segments(tmp_path / "source", {0: data_of}, clean=clean and not torn)
    before = contents(tmp_path / "source")
    (copy,) = adopt(data, tmp_path / "source")
    assert contents(tmp_path / "source") == before
    assert [outcome for *_, outcome in ends(copy)] == outcomes
    assert [(each.first_offset, each.last_offset) for each in aborted(copy)] == hidden
    assert copy.end_offset == batches(copy)[-1].base_offset + 1
    written = [each.marker_offset for each in copy.ended]
    assert written == [each[0] for each in ends(copy)][len(outcomes) - len(written) :]
    assert [each.base_offset for each in batches(copy) if each.max_timestamp_ms == NOW_MS] == (
        written
    )
    last = batches(copy)[-1]
    assert not written or (last.leader_epoch, last.base_sequence) == (EPOCH, -1)


def test_an_aborted_transaction_below_the_start(data: Path, tmp_path: Path) -> None:
    of = {0: INSIDE + marker(3, ABORT) + batch(4, 6)}
    segments(tmp_path / "source", of, lines={LOG_START_FILE: 5})
    (copy,) = adopt(data, tmp_path / "source")
    assert (copy.start_offset, copy.end_offset, copy.ended) == (5, 10, ())


def test_transactions_of_several_producers_end_in_their_order(data: Path, tmp_path: Path) -> None:
    other = batch(3, 2, attributes=TRANSACTIONAL, producer=4)
    segments(tmp_path / "source", {0: INSIDE, 3: other})
    (copy,) = adopt(data, tmp_path / "source")
    assert ends(copy) == [(5, 9, 0, ABORT), (6, 4, 0, ABORT)]
    assert copy.ended == (Ended(9, None, 0, 5, False), Ended(4, None, 3, 6, False))


def entry(first_offset: int) -> ProducerEntry:
    return ProducerEntry(9, 0, 0, 2, 2, 1_000, 0, first_offset)


@pytest.mark.parametrize(
    ("lines", "first_offset", "is_open"),
    [
        ({RECOVERY_POINT_FILE: 3}, -1, False),
        ({RECOVERY_POINT_FILE: 2}, -1, True),
        ({RECOVERY_POINT_FILE: 3}, 0, True),
    ],
)
def test_a_snapshot_is_believed_up_to_the_recovery_point(
    data: Path, tmp_path: Path, lines: Mapping[str, int], first_offset: int, is_open: bool
) -> None:
    """The marker of a transaction that ended below has gone with a compaction."""
    log = segments(tmp_path / "source", {0: INSIDE}, clean=False, lines=lines)
    producer_snapshots.write(log, 3, packed([entry(first_offset)]), sync=False)
    (copy,) = adopt(data, tmp_path / "source")
    assert ends(copy) == ([(3, 9, 0, ABORT)] if is_open else [])


# --- With transactional ids -----------------------------------------------------------------------


def image(state: State, *places: TopicPartition, **fields: int) -> TransactionImage:
    return TransactionImage(9, 0, 60_000, state, 1_000, 1_000, frozenset(places))._replace(**fields)


def write_states(
    source: Path, images: Mapping[str, TransactionImage], *, version: int = 1, index: int = 0
) -> None:
    data = b"".join(
        encode_batch(
            [Record(encode_key(name), encode_value(each, version), timestamp_ms=1_000)],
            base_offset=offset, leader_epoch=EPOCH,
        )
        for offset, (name, each) in enumerate(images.items())
    )  # fmt: skip
    segments(source, {0: data}, name=TopicPartition(STATES.topic, index), topic_id=STATES_ID)


def states(copies: list[Copied]) -> dict[str, TransactionImage]:
    """The last record of each id."""
    found = {}
    for copy in copies:
        for each in batches(copy) if copy.name.topic == STATES.topic else []:
            (record,) = each.records
            found[decode_key(record.key or b"")] = decode_value(record.value or b"")
    return found


@pytest.mark.parametrize(
    ("state", "places", "end"),
    [
        (State.PREPARE_COMMIT, [WORDS_0, GROUPS], (3, 9, 7, COMMIT)),
        (State.PREPARE_ABORT, [WORDS_0], (3, 9, 7, ABORT)),
        (State.ONGOING, [WORDS_0], (3, 9, 8, ABORT)),
        (State.PREPARE_COMMIT, [GROUPS], (3, 9, 0, ABORT)),
        (State.COMPLETE_COMMIT, [], (3, 9, 0, ABORT)),
    ],
)
def test_decided_transactions_are_completed(
    data: Path,
    tmp_path: Path,
    state: State,
    places: list[TopicPartition],
    end: tuple[int, int, int, int],
) -> None:
    """Whether the ids are adopted or not."""
    segments(tmp_path / "source", {0: INSIDE})
    write_states(tmp_path / "source", {"pay": image(state, *places, epoch=7)})
    (copy,) = adopt(data, tmp_path / "source")
    assert ends(copy) == [end]
    is_known = WORDS_0 in places
    name = "pay" if is_known else None
    assert copy.ended == (Ended(9, name, 0, 3, end[-1] == COMMIT),)


@pytest.mark.parametrize("version", [0, 1])
def test_ids_are_adopted_and_open_transactions_are_fenced(
    data: Path, tmp_path: Path, version: int
) -> None:
    source = tmp_path / "source"
    segments(source, {0: INSIDE})
    known = {
        "open": image(State.ONGOING, WORDS_0, epoch=7),
        "decided": image(State.PREPARE_COMMIT, GROUPS, producer_id=30_000),
        "idle": image(State.COMPLETE_ABORT, producer_id=3),
        "last epoch": image(State.ONGOING, WORDS_0, epoch=32_767, producer_id=4),
    }
    write_states(source, known, version=version)
    copies = adopt(data, source, transactions=True)
    assert [each.name for each in copies] == [STATES, WORDS_0]
    found = states(copies)
    for name in ("decided", "idle"):
        assert found[name] == known[name]
    for name, epoch in (("open", 8), ("last epoch", 32_767)):
        fence = found[name]
        assert (fence.state, fence.epoch, fence.update_ms) == (State.PREPARE_ABORT, epoch, NOW_MS)
        assert fence.partitions == {WORDS_0} and fence.producer_id == known[name].producer_id
    last = batches(copies[0])[-1]
    assert (last.leader_epoch, last.producer_id, last.base_sequence) == (EPOCH, -1, -1)
    assert (last.records[0].value or b"")[:2] == struct.pack(">h", version)
    assert next_producer_id(data) == 40_000
    assert configs_of(data, STATES.topic)["cleanup.policy"] == "compact"
    with pytest.raises(UserError, match="there are transactional ids here already"):
        adopt(data, source, transactions=True)


def test_ids_that_are_not_in_their_place(data: Path, tmp_path: Path) -> None:
    """The source lacks partitions of the state topic."""
    source, names = tmp_path / "source", [f"id {number}" for number in range(20)]
    for index in range(3):
        own = [name for name in names if partition_for(name, 4) == index]
        write_states(source, dict.fromkeys(own, image(State.EMPTY)), index=index)
    with pytest.raises(UserError, match="__transaction_state with 3 partitions has it: some are"):
        adopt(data, source, transactions=True)
    own = [name for name in names if partition_for(name, 4) == 3]
    write_states(source, dict.fromkeys(own, image(State.EMPTY)), index=3)
    assert states(adopt(data, source, transactions=True)).keys() == {*names}


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_of_ids_that_cannot_be_read(data: Path, tmp_path: Path, clean: bool) -> None:
    """Up to its torn end, after a crash; each record that a coordinator would skip is skipped."""
    source = tmp_path / "source"
    segments(source, {0: INSIDE}, clean=clean)
    open_id = {"pay": image(State.PREPARE_COMMIT, WORDS_0)}
    write_states(source, open_id)
    (path,) = (source / str(STATES)).glob("*.log")
    strange = [Record(b"\0\7", b"", timestamp_ms=1), Record(None, None, timestamp_ms=1)]
    whole = encode_batch(strange, base_offset=1)
    path.write_bytes(path.read_bytes() + whole + whole[:-1])
    if clean:
        with pytest.raises(UserError, match=rf"{path.name}: .*that are no batch|a batch of"):
            adopt(data, source)
        return
    (source / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (copy,) = adopt(data, source)
    assert [each.committed for each in copy.ended] == [True]


# --- Of Apache Kafka 4.3.0 ------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_files_of_apache_kafka_at_each_level(
    data: Path, tmp_path: Path, level: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Aborted transactions, whose index is made as Kafka has it, an open one, and the ids."""
    source, written = tmp_path / "source", partition_files()
    name = TopicPartition("t-00000000", 0)
    log = segments(source, {0: written.log}, name=name)
    (log / f"{0:020d}.txnindex").write_bytes(written.aborted_index)
    (log / f"{14:020d}.snapshot").write_bytes(written.snapshot)
    segments(source, {0: state_log(level)}, name=STATES, topic_id=STATES_ID)
    words = ["logdir", "adopt", str(source), "--data-dir", str(data), "--transactions"]
    assert main(words) == 0
    assert (
        "  t-00000000-0: the transaction of 'three-00000000' (producer id 2) that is open from"
        " offset 12 on is aborted at offset 14\n"
    ) in capsys.readouterr().out
    index = (data / str(name) / f"{0:020d}.txnindex").read_bytes()
    assert index.startswith(written.aborted_index)
    assert len(index) == len(written.aborted_index) // 2 * 3
    (path,) = (data / str(STATES)).glob("*.log")
    stored = path.read_bytes()
    assert stored.startswith(state_log(level))
    (fence,) = parse_batches(stored[len(state_log(level)) :])
    assert decode_key(fence.records[0].key or b"") == "three-00000000"
    assert decode_value(fence.records[0].value or b"").state is State.PREPARE_ABORT


def test_offsets_in_an_open_transaction(data: Path, tmp_path: Path) -> None:
    """What was committed in it is as if it had not been."""
    source = tmp_path / "source"
    segments(source, {0: batch(0)})
    segments(source, {0: INSIDE}, name=GROUPS, topic_id=OFFSETS)
    copies = {each.name: each for each in adopt(data, source, groups=True)}
    assert ends(copies[GROUPS]) == [(3, 9, 0, ABORT)]
