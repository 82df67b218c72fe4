"""What cannot be taken over is refused with a line, and nothing has changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbroker.errors import DataDirectoryError, UserError
from kbroker.log.engine.checkpoints import (
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    write_leader_epochs,
)
from kbroker.metadata import meta_properties
from kbroker.metadata.controller import records
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.transfer import adopt as adoption
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch
from tests.unit.metadata.transfer.foreign import (
    OTHER,
    WORDS,
    WORDS_0,
    adopt,
    batch,
    contents,
    segments,
    tree,
    two,
    write,
)


class Refusals:
    """Of one data directory and one source, each with nothing changed."""

    def __init__(self, data: Path, source: Path) -> None:
        self.data, self.source = data, source

    def __call__(
        self, match: str, *sources: Path, topics: tuple[str, ...] = (), groups: bool = False
    ) -> None:
        before = [contents(self.data), contents(self.source), tree(self.data)]
        with pytest.raises(UserError, match=match) as refused:
            adopt(self.data, *(sources or (self.source,)), topics=topics, groups=groups)
        assert ".adopting" not in str(refused.value)
        assert [contents(self.data), contents(self.source), tree(self.data)] == before


@pytest.fixture
def refused(data: Path, tmp_path: Path) -> Refusals:
    return Refusals(data, tmp_path / "source")


def flip(path: Path, at: int) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 1
    path.write_bytes(damaged)


def test_directories_that_are_not_a_whole_topic(refused: Refusals, tmp_path: Path) -> None:
    source = refused.source
    write(source, two())
    refused("no topic in", tmp_path)
    refused("topic words2 is not there", topics=("words2",))
    refused("topic __consumer_offsets is not there", groups=True)
    refused("__cluster_metadata is of Apache Kafka's own", topics=("__cluster_metadata",))
    refused("is named twice", source, tmp_path / "data" / ".." / "source")
    refused("is named twice", source, refused.data)
    same = tmp_path / "same"
    shutil.copytree(source, same)
    refused("the log of words-. is in", source, same)
    alone = tmp_path / "alone"
    write(alone, {TopicPartition("words", 1): WORDS})
    refused("words-0 is not there, and words-1 is", alone)
    mixed = tmp_path / "mixed"
    write(mixed, {TopicPartition("words", 0): WORDS, TopicPartition("words", 1): OTHER})
    refused("are of two topics of that name", mixed)
    (source / "words-1" / "partition.metadata").unlink()
    refused("has no partition.metadata")


def test_directories_of_two_brokers(refused: Refusals, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for source, node_id in ((refused.source, 1), (other, 2)):
        source.mkdir()
        meta_properties.ensure(source, "theirs", node_id)
    refused("are of different brokers", refused.source, other)


def test_damaged_logs(refused: Refusals) -> None:
    write(refused.source, two())
    path = min((refused.source / "words-1").glob("*.log"))
    sound = path.read_bytes()
    flip(path, 80)
    refused(rf"{path}: offset 0, byte 0: the CRC is .* -> .*dump-log --verify {path.parent}")
    path.write_bytes(sound[:16] + b"\1" + sound[17:])
    refused(rf"{path.name} holds batches of format 1; only format 2 is read")


@pytest.mark.parametrize("base_offset", [0, 10])
def test_damage_below_the_recovery_point_of_a_killed_broker(
    refused: Refusals, base_offset: int
) -> None:
    """In a segment before another one, and in the last one."""
    of = {0: batch(0, 10), 10: batch(10, 10)}
    log = segments(refused.source, of, clean=False, lines={RECOVERY_POINT_FILE: 20})
    path = log / f"{base_offset:020d}.log"
    flip(path, 80)
    refused(f"{path}: offset {base_offset}, byte 0: the CRC is")


def test_an_end_that_is_lost(refused: Refusals) -> None:
    """Of zeros nothing is kept."""
    of = {0: batch(0, 10) + bytes(1_000)}
    log = segments(refused.source, of, clean=False, lines={RECOVERY_POINT_FILE: 20})
    refused(f"{log} is whole only up to offset 10")


def test_segments_that_overlap(refused: Refusals) -> None:
    log = segments(refused.source, {0: batch(0, 10), 5: batch(5, 10)})
    refused(f"{log / f'{5:020d}.log'}: offset 5, byte 0: the segment before it ends with 9")


@pytest.mark.parametrize(
    ("start", "what"), [(99, "ends at offset 15, below its start 99"), (0, "tiered storage")]
)
def test_starts_that_the_files_do_not_have(refused: Refusals, start: int, what: str) -> None:
    segments(refused.source, {10: batch(10, 5)}, lines={LOG_START_FILE: start})
    refused(what)


def test_a_compaction_that_was_broken_off(refused: Refusals) -> None:
    log = segments(refused.source, {0: batch(0)})
    for suffix in ("swap", "cleaned"):
        left = log / f"{0:020d}.log.{suffix}"
        left.write_bytes(batch(0))
        refused(f"{left} is of a compaction that was broken off")
        left.unlink()


@pytest.mark.parametrize(
    ("epoch", "reason"),
    [
        (2**31 - 2, f"no broker can go on after leader epoch {2**31 - 2}"),
        (-2, "no epoch in '-2 0'"),
    ],
)
def test_leader_epochs_that_no_broker_can_follow(
    refused: Refusals, epoch: int, reason: str
) -> None:
    log = segments(refused.source, {0: build_batch()})
    write_leader_epochs(log / LEADER_EPOCH_FILE, [(epoch, 0)])
    refused(reason)


def test_files_that_say_nothing(refused: Refusals) -> None:
    """No trouble of a file is a traceback."""
    log = segments(refused.source, {0: batch(0)})
    (log / LEADER_EPOCH_FILE).write_bytes(b"0\n1\n")
    refused("announces 1 lines and has 0")
    (log / LEADER_EPOCH_FILE).unlink()
    (log / "words.log").write_bytes(b"")
    refused("no segment has such a name")
    (log / "words.log").unlink()
    (refused.source / LOG_START_FILE).write_bytes(b"\xff")
    refused("not text")


# --- Of the directory that adopts -----------------------------------------------------------------


def test_a_deletion_that_is_not_finished(data: Path, refused: Refusals) -> None:
    segments(refused.source, {0: batch(0)})
    store = EmbeddedStore.open(data)
    store.create(records.tombstone_path(WORDS), records.encode_tombstone("words", 1))
    store.close()
    refused("its delete is not finished -> start the broker once")


def test_a_topic_that_is_made_at_once_or_not(
    refused: Refusals, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(refused.source, two())
    monkeypatch.setattr(adoption, "MULTI_BYTES_MAX", 1_000)
    refused("topic words has 2 partitions, more than can be made at once")


def test_a_log_of_no_topic_stays(data: Path, refused: Refusals) -> None:
    segments(refused.source, {0: batch(0)})
    (data / str(WORDS_0)).mkdir()
    refused("words-0 is there already -> it belongs to no topic")


def test_a_broker_that_was_never_started_adopts_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(tmp_path / "source", two())
    with pytest.raises(DataDirectoryError, match="there is no metadata store in"):
        adopt(data, tmp_path / "source")
    store = EmbeddedStore.open(data)
    store.close()
    with pytest.raises(DataDirectoryError, match="belongs to no broker yet"):
        adopt(data, tmp_path / "source")
