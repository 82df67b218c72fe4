"""A backup has the records below the ends that were asked for, despite changes meanwhile."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from kbroker.backup import files, saved_metadata
from kbroker.backup.create import Backup, Wanted
from kbroker.backup.files import Copies
from kbroker.backup.held_logs import hold
from kbroker.backup.journal import Journal
from kbroker.backup.manifest import JOURNAL_FILE, LOGS, MANIFEST_FILE, METADATA_FILE, SavedFile
from kbroker.backup.opened_backup import open_backup, read_manifest, verify
from kbroker.clock import ManualClock
from kbroker.errors import UserError
from kbroker.log.engine.checkpoints import PARTITION_METADATA_FILE, write_partition_metadata
from kbroker.metadata.controller import records
from kbroker.metadata.image import TRANSACTIONS_TOPIC
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.types import TopicPartition
from tests.support.killed_calls import is_killed_at
from tests.support.snapshots import encode as encode_snapshot
from tests.unit.backup.serving import (
    ACL,
    IDS,
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    PRICES,
    PRICES_0,
    SCRAM,
    TOPICS,
    Serving,
    serving,
)
from tests.unit.metadata.transfer.foreign import batch

Then = Callable[[SavedFile], None]
FIRST, SECOND = f"{0:020d}.log", f"{6:020d}.log"
NOW_MS = 1_800_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Serving:
    return serving(tmp_path / "data")


def saved(target: Path, name: TopicPartition) -> bytes:
    logs = sorted((target / LOGS / str(name)).glob("*.log"))
    return b"".join(path.read_bytes() for path in logs)


def is_sound(target: Path) -> bool:
    return not any(found.damage for found in verify(open_backup(target)))


# --- Up to the ends -------------------------------------------------------------------------------


def test_records_below_the_end_are_saved_and_no_others(broker: Serving, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    broker.end[ORDERS_0], broker.end[ORDERS_1], broker.start[PRICES_0] = 9, 6, 7
    made = broker.backup(target)
    assert saved(target, ORDERS_0) == batch(0, 3) + batch(3, 3) + batch(6, 3)
    assert saved(target, ORDERS_1) == batch(0, 3) + batch(3, 3)
    assert saved(target, PRICES_0) == batch(6, 3) + batch(9, 3)
    assert is_sound(target)
    assert broker.asked == [
        "led_by", "committed_offsets", "ends_of", "ends_of ids", "high_watermarks"
    ]  # fmt: skip
    assert made.manifest.partitions[ORDERS_0].end_offset == 9
    assert made.copied_bytes == sum(len(saved(target, name)) for name in broker.end)
    assert not (target / JOURNAL_FILE).exists()


def test_an_end_within_a_batch_is_refused(broker: Serving, tmp_path: Path) -> None:
    """It would be another history than the leader's."""
    broker.end[ORDERS_0] = 10
    with pytest.raises(UserError, match="orders-0 is there up to offset 12, not 10"):
        broker.backup(tmp_path / "backup")


def test_a_log_that_ends_before_its_high_watermark(broker: Serving, tmp_path: Path) -> None:
    """Another broker leads the partition now, and this one lags."""
    broker.end[ORDERS_0] = 15
    with pytest.raises(UserError, match="up to offset 12, not 15 -> run it again"):
        broker.backup(tmp_path / "backup")
    assert not (tmp_path / "backup" / MANIFEST_FILE).exists()


def test_a_log_without_its_first_segment(broker: Serving, tmp_path: Path) -> None:
    """The leader has those records, so the directory that was named is not where they are."""
    (broker.log(ORDERS_0) / FIRST).unlink()
    with pytest.raises(UserError, match="orders-0 begins at offset 6, not 0"):
        broker.backup(tmp_path / "backup")
    assert not (tmp_path / "backup" / MANIFEST_FILE).exists()


def test_a_torn_batch_after_the_end_is_not_saved(broker: Serving, tmp_path: Path) -> None:
    broker.add(ORDERS_0, 6, batch(12, 3)[:-1])
    broker.backup(tmp_path / "backup")
    assert saved(tmp_path / "backup", ORDERS_0).endswith(batch(9, 3))
    assert is_sound(tmp_path / "backup")


def test_compaction_and_retention_meanwhile(broker: Serving, tmp_path: Path) -> None:
    """Between the ends and the copies a record below the end may lose its place to one above."""
    first = broker.log(PRICES_0) / FIRST

    def change() -> None:
        first.with_suffix(".cleaned").write_bytes(batch(5))
        first.with_suffix(".cleaned").rename(first)
        (broker.log(ORDERS_0) / FIRST).unlink()

    broker.meanwhile["ends_of"] = change
    broker.backup(tmp_path / "backup")
    whole = b"".join(batch(3 * number, 3) for number in range(4))
    assert saved(tmp_path / "backup", PRICES_0) == whole
    assert saved(tmp_path / "backup", ORDERS_0) == whole


def test_a_segment_that_is_rolled_meanwhile(broker: Serving, tmp_path: Path) -> None:
    def roll() -> None:
        broker.add(ORDERS_0, 12, batch(12, 3))
        broker.end[ORDERS_0] = 15

    broker.meanwhile["ends_of"] = roll
    broker.backup(tmp_path / "backup")
    assert saved(tmp_path / "backup", ORDERS_0).endswith(batch(9, 3) + batch(12, 3))


def test_segments_that_are_rolled_and_compacted_meanwhile(broker: Serving, tmp_path: Path) -> None:
    """A record below the end may be gone before its segment was opened."""

    def roll(name: TopicPartition) -> None:
        broker.add(name, 12, batch(12, 3))
        broker.add(name, 15, batch(15, 3))
        broker.end[name] = 18

    broker.meanwhile["ends_of"] = lambda: roll(ORDERS_0)  # it is not compacted
    broker.backup(tmp_path / "orders")
    assert saved(tmp_path / "orders", ORDERS_0).endswith(batch(12, 3) + batch(15, 3))
    broker.meanwhile["ends_of"] = lambda: roll(PRICES_0)
    with pytest.raises(UserError, match="prices-0 was compacted meanwhile -> run it again"):
        broker.backup(tmp_path / "prices")
    broker.meanwhile.clear()
    broker.backup(tmp_path / "prices")
    assert is_sound(tmp_path / "prices")


def test_a_newest_segment_that_is_replaced_meanwhile(broker: Serving, tmp_path: Path) -> None:
    """The one that was rolled since may be in it."""
    second = broker.log(PRICES_0) / SECOND

    def change() -> None:
        broker.add(PRICES_0, 15, batch(15, 3))
        broker.end[PRICES_0] = 18
        second.with_suffix(".cleaned").write_bytes(batch(11, 1) + batch(14, 1))
        second.with_suffix(".cleaned").rename(second)

    broker.meanwhile["ends_of"] = change
    with pytest.raises(UserError, match="prices-0 was compacted meanwhile"):
        broker.backup(tmp_path / "backup")


def test_files_that_get_their_names_meanwhile(broker: Serving, tmp_path: Path) -> None:
    swap = (broker.log(PRICES_0) / FIRST).with_suffix(".log.swap")
    (broker.log(PRICES_0) / FIRST).rename(swap)

    def end() -> None:
        swap.rename(broker.log(PRICES_0) / FIRST)

    broker.meanwhile["pause"] = end
    broker.backup(tmp_path / "backup")
    assert broker.asked.count("pause") == 1
    assert saved(tmp_path / "backup", PRICES_0).startswith(batch(0, 3))


def test_a_log_that_is_gone_is_not_waited_for_without_end(broker: Serving, tmp_path: Path) -> None:
    for path in broker.log(PRICES_0).glob("*.log"):
        path.unlink()
    with pytest.raises(UserError, match="the log of prices-0 cannot be read"):
        broker.backup(tmp_path / "backup")


def test_snapshots_and_epochs_up_to_the_end(broker: Serving, tmp_path: Path) -> None:
    log = broker.log(ORDERS_0)
    for offset in (3, 6, 9, 12):
        (log / f"{offset:020d}.snapshot").write_bytes(encode_snapshot([]))
    (log / "leader-epoch-checkpoint").write_bytes(b"0\n3\n0 0\n2 9\n4 12\n")
    broker.end[ORDERS_0] = 9
    broker.backup(tmp_path / "backup")
    there = tmp_path / "backup" / LOGS / "orders-0"
    assert sorted(path.name[:20] for path in there.glob("*.snapshot")) == [f"{6:020d}", f"{9:020d}"]
    assert (there / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n2 9\n"
    assert is_sound(tmp_path / "backup")


@pytest.mark.parametrize("again", [True, False], ids=["created again", "deleted"])
def test_snapshots_of_another_topic_of_its_name_are_left_out(
    broker: Serving, tmp_path: Path, again: bool
) -> None:
    """They are read by their names, after the records, of which the files are held open."""
    path = broker.log(ORDERS_0)
    held = hold(ORDERS_0, path, lambda: None, is_compacted=False)
    (path / f"{9:020d}.snapshot").write_bytes(encode_snapshot([]))
    assert list(held.snapshots(9)) == [f"{9:020d}.snapshot"]
    path.rename(tmp_path / "orders-0.deleted")
    if again:
        path.mkdir()
        write_partition_metadata(path / PARTITION_METADATA_FILE, UUID(int=99))
        (path / f"{9:020d}.snapshot").write_bytes(encode_snapshot([]))
    assert held.snapshots(9) == {}
    held.close()


def test_a_large_segment_is_cut_by_its_index(broker: Serving, tmp_path: Path) -> None:
    """Without it a million headers would be read; with a wrong one the file is read from its
    beginning."""
    size = len(batch(100_002, 3))
    count = (1 << 20) // size + 10
    data = b"".join(batch(100_002 + 3 * number, 3) for number in range(count))
    broker.add(ORDERS_0, 100_002, data)
    broker.end[ORDERS_0] = end = 100_002 + 3 * (count - 4)
    index = broker.log(ORDERS_0) / f"{100_002:020d}.index"
    for position in (size * (count - 8), size * (count - 8) + 1):
        last_offset = 3 * (count - 8) + 2
        index.write_bytes(last_offset.to_bytes(4, "big") + position.to_bytes(4, "big"))
        target = tmp_path / str(position)
        broker.backup(target)
        assert saved(target, ORDERS_0).endswith(data[: size * (count - 4)])
        assert open_backup(target).manifest.partitions[ORDERS_0].end_offset == end


# --- Again ----------------------------------------------------------------------------------------


def inode(target: Path, name: TopicPartition, file: str) -> int:
    return (target / LOGS / str(name) / file).stat().st_ino


def test_closed_segments_of_the_base_are_linked(broker: Serving, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    base = broker.backup(one).manifest
    rewritten = broker.log(PRICES_0) / FIRST
    data = rewritten.read_bytes()
    rewritten.unlink()
    rewritten.write_bytes(data[::-1][::-1])  # the same bytes in another file
    made = broker.backup(two, Wanted(base=(one, base)))
    assert inode(one, ORDERS_0, FIRST) == inode(two, ORDERS_0, FIRST)
    assert inode(one, ORDERS_0, SECOND) != inode(two, ORDERS_0, SECOND)
    assert inode(one, PRICES_0, FIRST) != inode(two, PRICES_0, FIRST)
    assert made.linked_bytes == 2 * len(data)
    assert is_sound(one)
    assert is_sound(two)


def test_a_file_of_the_base_that_became_shorter_is_copied(broker: Serving, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    base = broker.backup(one).manifest
    os.truncate(one / LOGS / "orders-0" / FIRST, 5)
    (one / LOGS / "orders-1" / FIRST).unlink()
    (one / LOGS / "orders-1" / FIRST).symlink_to(broker.log(ORDERS_1) / FIRST)
    made = broker.backup(two, Wanted(base=(one, base)))
    assert made.linked_bytes == len(batch(0, 3) + batch(3, 3))
    assert is_sound(two)


def test_a_backup_that_was_broken_off_goes_on(
    broker: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, copied = tmp_path / "backup", Copies.copy
    left = 3

    def failing(self: Copies, source: int, size_bytes: int, path: Path, then: Then) -> SavedFile:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        left -= 1
        return copied(self, source, size_bytes, path, then)

    monkeypatch.setattr(Copies, "copy", failing)
    with pytest.raises(UserError, match=r"No space left on device -> make room, and run it again"):
        broker.backup(target)
    assert not (target / MANIFEST_FILE).exists()
    kept = inode(target, ORDERS_0, FIRST)
    stray = target / LOGS / "gone-0"
    stray.mkdir()
    (stray / FIRST).write_bytes(b"of a topic that was deleted")
    with (target / JOURNAL_FILE).open("ab") as journal:
        journal.write(b'["logs/orders-1/')  # the last line is torn
    monkeypatch.undo()
    made = broker.backup(target)
    assert made.linked_bytes == 2 * len(batch(0, 3) + batch(3, 3))
    assert inode(target, ORDERS_0, FIRST) == kept
    assert not stray.exists()
    assert is_sound(target)


def test_killed_at_every_step(memory_path: Path) -> None:
    """Of an incremental backup: there is none, or it is whole; the next run, and the next backup
    after it, go on."""
    broker = serving(memory_path / "data", {"orders": (ORDERS, 1)})
    one, two, three = memory_path / "one", memory_path / "two", memory_path / "three"
    base = broker.backup(one).manifest
    broker.add(ORDERS_0, 12, batch(12, 3))
    broker.end[ORDERS_0] = 15
    data = b"".join(batch(3 * number, 3) for number in range(5))
    last = 0
    while is_killed_at(last, lambda: broker.backup(two, Wanted(base=(one, base)))):
        if (two / MANIFEST_FILE).exists():
            with pytest.raises(UserError, match="has a backup"):
                broker.backup(two, Wanted(base=(one, base)))
        else:
            with pytest.raises(UserError, match="is no backup, or one that is not finished"):
                open_backup(two)
            broker.backup(two, Wanted(base=(one, base)))
        assert is_sound(two) and saved(two, ORDERS_0) == data
        again = broker.backup(three, Wanted(base=(two, read_manifest(two))))
        assert again.linked_bytes == len(data) - len(batch(12, 3))  # the closed segments
        assert is_sound(three) and is_sound(one)
        shutil.rmtree(two)
        shutil.rmtree(three)
        last += 1
    assert last > 30 and is_sound(two)


def test_a_kernel_that_cannot_copy(
    broker: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: int) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "copy_file_range", refused)
    broker.backup(tmp_path / "backup")
    assert saved(tmp_path / "backup", ORDERS_0) == b"".join(batch(3 * n, 3) for n in range(4))
    assert is_sound(tmp_path / "backup")


def test_a_large_file_is_copied_and_brought_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, the last one shorter, with syncs on the way."""
    monkeypatch.setattr(files, "SYNC_BYTES", 2 * files.PIECE_BYTES)
    data = bytes(range(256)) * (5 * files.PIECE_BYTES // 256) + b"end"
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data + b"after it")
    noted: list[SavedFile] = []
    with files.opened(source) as handle, Copies() as copies:
        found = copies.copy(handle, len(data), target, noted.append)
        with pytest.raises(ValueError, match="became shorter"):
            copies.copy(handle, len(data) + 100, tmp_path / "longer", noted.append)
    assert noted == [found]
    assert target.read_bytes() == data
    assert found == SavedFile(len(data), files.digest_of(data))
    files.check_file(target, found)


def test_a_file_of_which_a_sync_failed_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel gives the error to one sync alone; the next one of that file succeeds."""
    monkeypatch.setattr(files, "SYNC_BYTES", files.PIECE_BYTES)
    synced = os.fdatasync
    failed: list[int] = []

    def failing(handle: int) -> None:
        if not failed:
            failed.append(handle)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        synced(handle)

    monkeypatch.setattr(os, "fdatasync", failing)
    source = tmp_path / "source"
    source.write_bytes(bytes(2 * files.PIECE_BYTES))
    noted: list[SavedFile] = []

    def copy_two() -> None:
        with files.opened(source) as handle, Copies() as copies:
            copies.copy(handle, 2 * files.PIECE_BYTES, tmp_path / "one", noted.append)
            copies.copy(handle, 1, tmp_path / "two", noted.append)

    with pytest.raises(OSError, match="error"):
        copy_two()
    assert failed
    assert noted == []


def test_a_run_that_ended_before_it_removed_its_journal(
    broker: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "remove", lambda _: None)
    broker.backup(tmp_path / "backup")
    assert (tmp_path / "backup" / JOURNAL_FILE).exists()
    assert is_sound(tmp_path / "backup")


def test_a_topic_that_changes_while_metadata_is_read(broker: Serving, tmp_path: Path) -> None:
    """A restore would miss a partition, or a topic."""
    broker.topics = {**broker.topics, "prices": (PRICES, 2)}
    broker.end[TopicPartition("prices", 1)] = 0
    with pytest.raises(UserError, match="topic prices was created, changed or deleted meanwhile"):
        broker.backup(tmp_path / "backup")


def test_a_topic_that_may_not_be_described(tmp_path: Path) -> None:
    """The broker leaves it out without an error; a backup without it would not be of all topics."""
    broker = serving(tmp_path / "data", {**TOPICS, TRANSACTIONS_TOPIC: (IDS, 1)})
    broker.hidden = ["prices"]
    with pytest.raises(UserError, match="topic prices may not be described"):
        broker.backup(tmp_path / "all")
    assert not (tmp_path / "all" / MANIFEST_FILE).exists()
    broker.backup(tmp_path / "some", Wanted(topics=["orders"]))
    broker.hidden = [TRANSACTIONS_TOPIC]
    with pytest.raises(UserError, match=f"topic {TRANSACTIONS_TOPIC} may not be described"):
        broker.backup(tmp_path / "other", Wanted(topics=["orders"]))


def test_a_topic_that_is_created_again_meanwhile(broker: Serving, tmp_path: Path) -> None:
    """Its new log may have as many records, and the ends that were asked for are its own."""
    path = broker.log(ORDERS_0) / PARTITION_METADATA_FILE

    def create_again() -> None:
        path.unlink()
        write_partition_metadata(path, UUID(int=99))

    broker.meanwhile["ends_of"] = create_again
    with pytest.raises(UserError, match="orders-0 was deleted and created again meanwhile"):
        broker.backup(tmp_path / "backup")
    assert not (tmp_path / "backup" / MANIFEST_FILE).exists()


def test_a_segment_that_is_rolled_beside_a_compaction(broker: Serving, tmp_path: Path) -> None:
    def roll() -> None:
        (broker.log(ORDERS_0) / f"{0:020d}.log.swap").touch()
        broker.add(ORDERS_0, 12, batch(12, 3))
        broker.end[ORDERS_0] = 15

    broker.meanwhile["ends_of"] = roll
    broker.backup(tmp_path / "backup")
    assert saved(tmp_path / "backup", ORDERS_0).endswith(batch(12, 3))


def test_places_where_no_backup_is_made(broker: Serving, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    broker.backup(target)
    with pytest.raises(UserError, match="has a backup -> name another directory"):
        broker.backup(target)
    with pytest.raises(UserError, match="overlaps"):
        broker.backup(broker.directory)
    with pytest.raises(UserError, match="is not empty"):
        broker.backup(tmp_path)
    other = tmp_path / "other"
    with (
        Journal.begin(other),
        pytest.raises(UserError, match="another backup is being made"),
    ):
        broker.backup(other)
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "x", tmp_path / "gone" / "x"):
        with pytest.raises(UserError, match=r"directory -> name a directory, in one that is there"):
            broker.backup(path)


def test_a_place_in_the_saved_directories(broker: Serving, tmp_path: Path) -> None:
    """A broker reads the names in its data directory, and `verify` those in a backup."""
    (tmp_path / "link").symlink_to(broker.directory)
    for place in (broker.directory / "backup", tmp_path / "link" / "backup"):
        with pytest.raises(UserError, match=r"overlaps .*data -> name a place outside"):
            broker.backup(place)
    base = broker.backup(tmp_path / "one").manifest
    with pytest.raises(UserError, match=r"overlaps .*one -> name a place outside"):
        broker.backup(tmp_path / "one" / "two", Wanted(base=(tmp_path / "one", base)))
    assert is_sound(tmp_path / "one")


def test_a_directory_of_another_cluster(broker: Serving, tmp_path: Path) -> None:
    broker.cluster_id = "another"
    with pytest.raises(UserError, match=r"belongs to cluster td1o.* to another -> name its broker"):
        broker.backup(tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


# --- Metadata -------------------------------------------------------------------------------------


def test_secrets_are_saved_by_flags_alone(broker: Serving, tmp_path: Path) -> None:
    tree = broker.opened(tmp_path / "plain").tree
    assert records.decode_configs("", tree["/config/users/alice"]) == {"producer_byte_rate": "1024"}
    assert "/config/users/bob" not in tree
    assert "/config/ips/192.0.2.1" in tree
    assert ACL not in tree
    assert b"secret" not in (tmp_path / "plain" / METADATA_FILE).read_bytes()
    full = broker.opened(tmp_path / "full", Wanted(users=True, acls=True)).tree
    assert SCRAM.encode() in full["/config/users/bob"]
    assert ACL in full
    for left_out in ("/config/brokers/7", "/kbroker/sasl", "/delegation_token/tokens/t1"):
        assert left_out not in full


def test_files_are_for_their_owner_alone(broker: Serving, tmp_path: Path) -> None:
    broker.backup(tmp_path / "backup")
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "backup").rglob("*")}
    assert modes == {0}


def test_metadata_is_read_beside_its_owner(tmp_path: Path) -> None:
    """The copy has what was committed last, and the owner's files are as they were."""
    data = tmp_path / "data"
    with closing(EmbeddedStore.open(data)) as store:
        for number in range(50):
            store.create(f"/node-{number}", b"x" * 1000)
        tree = saved_metadata.read_embedded(data, tmp_path / "scratch", lambda: None)
        assert len(tree) == 50
        store.create("/one-more")
    assert not (tmp_path / "scratch").exists()


def test_metadata_that_a_killed_run_has_left(broker: Serving, tmp_path: Path) -> None:
    """It has secrets; the next run may read metadata from ZooKeeper, without a copy."""
    tree = saved_metadata.read_embedded(broker.directory, tmp_path / "scratch", lambda: None)
    target = tmp_path / "backup"
    left = target / ".metadata"
    left.mkdir(parents=True)
    (target / JOURNAL_FILE).touch()
    (left / "metadata.db").write_bytes(b"secret")
    run = Backup(target, [broker.directory], lambda *_: tree, broker, ManualClock(NOW_MS))
    run.run(Wanted())
    assert not left.exists()
    assert is_sound(target)


def test_metadata_that_changes_while_it_is_read(
    broker: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, paused = saved_metadata._files, []
    torn = iter([{"metadata.db": b"torn"}])
    monkeypatch.setattr(saved_metadata, "_files", lambda path: next(torn, None) or found(path))
    tree = saved_metadata.read_embedded(
        broker.directory, tmp_path / "scratch", lambda: paused.append(1)
    )
    assert records.CLUSTER_ID in tree
    assert paused == [1]
