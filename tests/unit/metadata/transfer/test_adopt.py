"""Topics of another broker are taken over whole, or nothing has changed on either side."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kbroker.cli.main import main
from kbroker.errors import UserError
from kbroker.log.engine.checkpoints import (
    CLEANER_FILE,
    HIGH_WATERMARK_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    read_offsets,
    write_leader_epochs,
    write_offsets,
)
from kbroker.log.looking.verify import verify
from kbroker.log.opening.data_directory import CLEAN_SHUTDOWN_FILE, LOCK_FILE
from kbroker.metadata.controller import records
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.image import NO_LEADER, TopicImage
from kbroker.metadata.store.base import StoreError
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.transfer.adopt import PRODUCER_IDS_LEFT_OUT
from kbroker.testing.file_faults import Fault, FileFaults
from kbroker.types import TopicPartition
from tests.support.record_batches import build_batch, parse_batches
from tests.unit.metadata.transfer.foreign import (
    BATCHES,
    EPOCH,
    GROUPS,
    OFFSETS,
    OTHER,
    PRODUCER,
    WORDS,
    WORDS_0,
    adopt,
    batch,
    contents,
    read,
    segments,
    tree,
    two,
    write,
)

FAULTS = 25  # of all operations of an adoption


def state_of(data: Path, name: TopicPartition) -> records.PartitionRecord:
    path = records.partition_state_path(*name)
    store = EmbeddedStore.open(data)
    try:
        return records.decode_partition(path, store.get(path).data)
    finally:
        store.close()


def configs_of(data: Path, topic: str) -> dict[str, str]:
    path = records.topic_config_path(topic)
    return records.decode_configs(path, tree(data)[path])


def next_producer_id(data: Path) -> int:
    store = EmbeddedStore.open(data)
    try:
        return records.decode_producer_id_block("", store.get(records.PRODUCER_ID_BLOCK).data)
    finally:
        store.close()


def test_a_topic_is_as_its_logs_know_it(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, two())
    before = contents(source)
    copies = adopt(data, source)
    assert contents(source) == before
    assert [(c.name, c.path, c.start_offset, c.end_offset) for c in copies] == [
        (name, data / str(name), 4, 3 * BATCHES) for name in two()
    ]
    path = records.topic_path("words")
    assert records.decode_topic(path, tree(data)[path]) == (WORDS, ((0,), (0,)), {}, {})
    for index in range(2):
        state = state_of(data, TopicPartition("words", index))
        assert state == (0, EPOCH + index + 1, (0,), (), 0, NO_LEADER)
    assert configs_of(data, "words") == {
        "retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "compact"
    }  # fmt: skip
    # No producer gets an id that the logs know, or one that is idle may have.
    assert next_producer_id(data) == PRODUCER + 1 + PRODUCER_IDS_LEFT_OUT
    assert read_offsets(data / LOG_START_FILE) == dict.fromkeys(two(), 4)
    assert read_offsets(data / RECOVERY_POINT_FILE) == dict.fromkeys(two(), 3 * BATCHES)
    assert (data / CLEAN_SHUTDOWN_FILE).exists()
    for name in two():
        assert read(data, name, WORDS) == read(source, name, WORDS)


def test_topics_are_chosen_and_directories_put_together(data: Path, tmp_path: Path) -> None:
    """Of several log.dirs; Apache Kafka's own topics are left out, and what is here by now."""
    first, second = tmp_path / "first", tmp_path / "second"
    names = [*two(), TopicPartition("other", 0), TopicPartition("__transaction_state", 0)]
    ids = dict(zip(names, (WORDS, WORDS, OTHER, UUID(int=24)), strict=True))
    write(first, {name: ids[name] for name in names[:1]})
    write(second, {name: ids[name] for name in names[1:]})
    assert [each.name for each in adopt(data, first, second, topics=("words",))] == names[:2]
    with pytest.raises(UserError, match="topic words exists"):
        adopt(data, first, second, topics=("words",))
    assert [each.name for each in adopt(data, first, second)] == names[2:3]
    with pytest.raises(UserError, match="is new here"):
        adopt(data, first, second)


def test_committed_offsets_of_groups_come_with_the_last_topics(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, {WORDS_0: WORDS, TopicPartition("other", 0): OTHER, GROUPS: OFFSETS})
    with pytest.raises(UserError, match="committed for other would be lost"):
        adopt(data, source, topics=("words",), groups=True)
    with pytest.raises(UserError, match="--groups adopts"):
        adopt(data, source, topics=(GROUPS.topic,))
    assert [each.name.topic for each in adopt(data, source, topics=("other",))] == ["other"]
    copies = adopt(data, source, topics=("words",), groups=True)
    assert [each.name for each in copies] == [GROUPS, WORDS_0]
    assert configs_of(data, GROUPS.topic) == {
        "cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"
    }  # fmt: skip
    with pytest.raises(UserError, match="groups have committed here already"):
        adopt(data, source, groups=True)


def test_groups_come_alone_where_the_topics_are_here(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    write(source, {WORDS_0: WORDS, GROUPS: OFFSETS})
    adopt(data, source)
    assert [each.name for each in adopt(data, source, groups=True)] == [GROUPS]


def test_a_batch_that_a_crash_has_torn_is_cut(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    manager = write(source, two(), clean=False)
    torn = max((source / "words-1").glob("*.log"))
    torn.write_bytes(torn.read_bytes() + build_batch([b"half of it"])[:-3])
    with pytest.raises(UserError, match="source is in use"):
        adopt(data, source)
    manager.stop(as_found=True)
    (source / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
    before = contents(source)
    copies = adopt(data, source)
    assert contents(source) == before
    assert [each.end_offset for each in copies] == [3 * BATCHES] * 2
    assert [[path.parent for path in each.cut] for each in copies] == [[], [data / "words-1"]]
    assert all(path.exists() for path in copies[1].cut)
    assert read(data, copies[1].name, WORDS)[:2] == (4, 3 * BATCHES)


def test_a_source_that_may_only_be_read(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    manager = write(source, two(), clean=False)
    opened = os.open

    def read_only(path: Any, flags: int, *mode: int, **how: int) -> int:
        if Path(path) == source / LOCK_FILE and flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opened(path, flags, *mode, **how)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        with pytest.raises(UserError, match="source is in use"):
            adopt(data, source)
    manager.stop()
    monkeypatch.setattr(os, "open", read_only)


# --- Gaps of a compaction -------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_with_gaps_is_whole_after_any_crash(data: Path, tmp_path: Path, clean: bool) -> None:
    """Nothing is left of its first segment, little of the next ones, and the last is empty."""
    source = tmp_path / "source"
    kept = [batch(12, 2), batch(17), batch(20, 3), batch(30)]
    of = {0: b"", 10: kept[0] + kept[1], 20: kept[2], 30: kept[3], 40: b""}
    segments(source, of, clean=clean, lines={RECOVERY_POINT_FILE: 40, HIGH_WATERMARK_FILE: 40})
    before = contents(source)
    (copy,) = adopt(data, source)
    assert contents(source) == before
    assert (copy.end_offset, copy.cut) == (40, ())
    found = verify(data / "words-0")
    assert (found.damage, found.next_offset) == ([], 40)
    (data / RECOVERY_POINT_FILE).unlink()
    (data / CLEAN_SHUTDOWN_FILE).unlink()
    start, end, stored = read(data, WORDS_0, WORDS)
    assert (start, end) == (0, 40)
    batches = parse_batches(stored)
    empty = [each for each in batches if not each.record_count]
    assert [each.records for each in batches if each.record_count] == [
        each.records for each in parse_batches(b"".join(kept))
    ]
    assert [(each.base_offset, each.last_offset_delta, each.leader_epoch) for each in empty] == [
        (9, 0, -1), (19, 0, EPOCH), (29, 0, EPOCH), (39, 0, EPOCH)
    ]  # fmt: skip
    assert not list((data / "words-0").glob("*.cut"))


def test_a_log_that_is_torn_in_the_middle_has_no_gap(data: Path, tmp_path: Path) -> None:
    """After the recovery point a power cut may have taken it, and all that was after it."""
    source = tmp_path / "source"
    of = {0: batch(0, 5) + batch(5, 3)[:-4], 10: batch(10)}
    segments(source, of, clean=False, lines={RECOVERY_POINT_FILE: 5})
    (copy,) = adopt(data, source)
    assert copy.end_offset == 5
    assert [path.name for path in copy.cut] == [
        f"{0:020d}.log.{len(batch(0, 5))}.cut", f"{10:020d}.log.cut"
    ]  # fmt: skip


def test_the_command_reports_its_steps(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = batch(0, 5)
    segments(tmp_path / "source", {0: sound + batch(5, 3)[:-4]}, clean=False)
    words = ["logdir", "adopt", str(tmp_path / "source"), "--data-dir", str(data)]
    assert main([*words, "-c", "retention.msec=5"]) == 2
    assert "did you mean retention.ms?" in capsys.readouterr().err
    assert main([*words, "-c", "retention.ms=5"]) == 0
    cut = data / "words-0" / f"{0:020d}.log.{len(sound)}.cut"
    assert capsys.readouterr().out.splitlines() == [
        "words: 1 partition",
        f"  words-0: offsets 0 to 5, {len(sound)} bytes",
        f"  words-0: a crash has torn its end, which is kept as {cut}",
    ]
    assert configs_of(data, "words") == {"retention.ms": "5", "retention.bytes": "-1"}
    assert main([*words, "-t", "words"]) == 2
    assert capsys.readouterr().err.startswith("error: KB1001 topic words exists -> ")


# --- Metadata -------------------------------------------------------------------------------------


def test_ids_of_producers_that_no_snapshot_knows(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    segments(source, {0: batch(0, producer=7_000) + batch(1, producer=20)})
    adopt(data, source)
    assert next_producer_id(data) == 7_000 + PRODUCER_IDS_LEFT_OUT


def test_the_last_leader_epoch_that_can_be_followed(data: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    log = segments(source, {0: batch(0)})
    write_leader_epochs(log / LEADER_EPOCH_FILE, [(EPOCH, 0), (2**31 - 3, 1)])
    adopt(data, source)
    assert state_of(data, WORDS_0).leader_epoch == 2**31 - 2


def test_checkpoints_that_kafka_has_only_begun(data: Path, tmp_path: Path) -> None:
    log = segments(tmp_path / "source", {0: batch(0, 5)})
    for path in (log / LEADER_EPOCH_FILE, tmp_path / "source" / CLEANER_FILE):
        path.write_bytes(b"")
    adopt(data, tmp_path / "source")
    assert state_of(data, WORDS_0).leader_epoch == EPOCH + 1


def test_lines_of_a_log_that_is_gone_are_not_the_new_ones(data: Path, tmp_path: Path) -> None:
    source, other = tmp_path / "source", TopicPartition("other", 0)
    segments(source, {0: batch(0, 5)})
    for file in (LOG_START_FILE, CLEANER_FILE):
        write_offsets(data / file, {WORDS_0: 3, other: 2})
    adopt(data, source)
    assert read_offsets(data / LOG_START_FILE) == {other: 2}
    assert read_offsets(data / CLEANER_FILE) == {other: 2}
    assert read(data, WORDS_0, WORDS)[0] == 0


# --- What goes wrong half way ---------------------------------------------------------------------


@pytest.mark.parametrize("error", [StoreError("", "it is broken"), KeyboardInterrupt()])
def test_topics_that_are_not_made_leave_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The others stay, and the next adoption goes on with the rest."""
    source = tmp_path / "source"
    write(source, two() | {TopicPartition("other", 0): OTHER})
    before, known = contents(data), tree(data)
    made, refused = MetadataNodes.create_topics, {"other", "words"}

    def create_topics(nodes: MetadataNodes, topics: Iterable[TopicImage]) -> None:
        (topic,) = topics
        if topic.name in refused:
            raise error
        made(nodes, [topic])

    with monkeypatch.context() as patch:
        patch.setattr(MetadataNodes, "create_topics", create_topics)
        with pytest.raises((UserError, KeyboardInterrupt)):
            adopt(data, source)
        assert (contents(data), tree(data)) == (before, known)
        refused.remove("other")
        with pytest.raises((UserError, KeyboardInterrupt)) as failed:
            adopt(data, source)
        if isinstance(error, StoreError):
            assert "only other was adopted" in str(failed.value)
    names = {each.name for each in data.glob("*-?") if each.is_dir()}
    assert names == {"other-0"}
    assert read_offsets(data / RECOVERY_POINT_FILE).keys() == {TopicPartition("other", 0)}
    assert [each.name for each in adopt(data, source)] == [*two()]


def test_a_disk_that_fails_at_any_step_leaves_nothing(data: Path, tmp_path: Path) -> None:
    """Without a mark of a clean stop, which is nothing that a disk could fail to put back."""
    source, spare = tmp_path / "source", tmp_path / "spare"
    write(source, two())
    (data / CLEAN_SHUTDOWN_FILE).unlink()
    shutil.copytree(data, spare)
    with FileFaults() as watched:
        adopt(data, source)
    operations = len(watched.seen)
    refused = 0
    for nth in range(1, operations, max(1, operations // FAULTS)):
        shutil.rmtree(data)
        shutil.copytree(spare, data)
        before, known = contents(data), tree(data)
        with FileFaults(Fault(nth=nth, error=errno.ENOSPC)):
            try:
                adopt(data, source)
            except UserError as error:
                refused += 1
                assert "No space left" in str(error), nth
                assert (contents(data), tree(data)) == (before, known), nth
                assert len(adopt(data, source)) == 2, nth
    assert refused > FAULTS / 2
