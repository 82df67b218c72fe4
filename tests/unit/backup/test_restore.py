"""A restore makes a directory that is whole, or one on which no broker starts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kbroker.backup import restore as restore_module
from kbroker.backup.create import Wanted as Saved
from kbroker.backup.opened_backup import OpenedBackup, open_backup
from kbroker.backup.questions import CommittedOffset
from kbroker.backup.restore import STATE_FILE, Restore, Restored, Wanted
from kbroker.coordinator.group.group_records import offset_key
from kbroker.coordinator.runtime._shard_table import partition_for
from kbroker.errors import DataDirectoryError, UsageError, UserError
from kbroker.log import adopted
from kbroker.log.looking.verify import verify
from kbroker.log.opening.data_directory import DataDirectory
from kbroker.metadata import directory_format, meta_properties
from kbroker.metadata.controller import records
from kbroker.metadata.image import OFFSETS_TOPIC
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.metadata.transfer.adopt import Adoption
from kbroker.types import TopicPartition
from tests.support.killed_calls import is_killed_at
from tests.support.record_batches import parse_batches
from tests.unit.backup.serving import (
    ACL,
    CLUSTER,
    NODE,
    ORDERS,
    ORDERS_0,
    ORDERS_1,
    PRICES_0,
    TOPICS,
    Serving,
    serving,
)
from tests.unit.metadata.transfer.foreign import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    batch,
    marker,
)

NOW_MS = 1_800_000_000_000
OFFSETS = [
    CommittedOffset("shop", ORDERS_0, 7, 2, "note"),
    CommittedOffset("shop", ORDERS_1, 99, 2, ""),
    CommittedOffset("till", ORDERS_0, 1, -1, ""),
    CommittedOffset("till", PRICES_0, 12, 0, ""),
]


@pytest.fixture
def broker(tmp_path: Path) -> Serving:
    found = serving(tmp_path / "data")
    found.offsets = OFFSETS
    found.start[ORDERS_0] = 2
    return found


def restored(
    target: Path, backups: Sequence[OpenedBackup], wanted: Wanted | None = None
) -> Restored:
    return Restore(target, "boot", NOW_MS).run(backups, wanted or Wanted())


def node(target: Path, path: str) -> bytes | None:
    with closing(EmbeddedStore.open(target)) as store:
        return store.get(path).data if store.exists(path) else None


def batches(target: Path, name: TopicPartition) -> bytes:
    log = target / str(name)
    assert verify(log).damage == []
    return b"".join(path.read_bytes() for path in sorted(log.glob("*.log")))


def committed(target: Path) -> dict[tuple[str, TopicPartition], int]:
    """As the log of offsets has them, each in the partition of its group."""
    found: dict[tuple[str, TopicPartition], int] = {}
    for each in OFFSETS:
        partition = partition_for(each.group, 3)
        data = batches(target, TopicPartition(OFFSETS_TOPIC, partition))
        for record in (one for some in parse_batches(data) for one in some.records):
            if record.key == offset_key(each.group, *each.partition):
                found[each.group, each.partition] = int.from_bytes((record.value or b"")[2:10])
    return found


def test_a_new_broker_has_the_saved_records_and_settings(broker: Serving, tmp_path: Path) -> None:
    target = tmp_path / "new"
    saved = broker.opened(tmp_path / "backup", Saved(users=True, acls=True))
    done = restored(target, [saved], Wanted(users=True, acls=True))
    assert meta_properties.load(target) is not None
    assert (done.cluster_id, done.node_id) == (CLUSTER, NODE)
    for name in (ORDERS_0, ORDERS_1, PRICES_0):
        assert batches(target, name) == b"".join(batch(3 * number, 3) for number in range(4))
    for topic, (topic_id, count) in TOPICS.items():
        here = records.decode_topic("", node(target, records.topic_path(topic)) or b"")
        assert (here.topic_id, here.replicas) == (topic_id, ((NODE,),) * count)
    configs = node(target, records.topic_config_path("orders")) or b""
    assert records.decode_configs("", configs) == {"retention.ms": "5000"}
    for path in ("/config/users/bob", "/config/ips/192.0.2.1", "/config/groups/g", ACL):
        assert node(target, path) is not None
    assert committed(target) == {
        ("shop", ORDERS_0): 7, ("shop", ORDERS_1): 12, ("till", ORDERS_0): 2,
        ("till", PRICES_0): 12,
    }  # fmt: skip
    assert [(each.group, each.committed, each.restored) for each in done.corrected] == [
        ("shop", 99, 12), ("till", 1, 2)
    ]  # fmt: skip
    assert directory_format.load(target) == 0
    assert not (target / STATE_FILE).exists()
    assert not any(path.name.startswith("restored") for path in target.iterdir())


def test_one_topic_into_another_cluster(broker: Serving, tmp_path: Path) -> None:
    saved = broker.opened(tmp_path / "backup", Saved(users=True))
    wanted = Wanted(topics=["prices"], cluster_id="other", node_id=3, keep_records=True)
    done = restored(tmp_path / "new", [saved], wanted)
    assert {*done.partitions} == {PRICES_0}
    own = meta_properties.load(tmp_path / "new")
    assert own is not None
    assert (own.cluster_id, own.node_id) == ("other", 3)
    configs = node(tmp_path / "new", records.topic_config_path("prices")) or b""
    assert records.decode_configs("", configs) == {
        "cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1"
    }  # fmt: skip
    assert node(tmp_path / "new", records.topic_path("orders")) is None
    assert node(tmp_path / "new", "/config/users/bob") is None
    assert committed(tmp_path / "new") == {("till", PRICES_0): 12}


def test_backups_of_two_brokers(broker: Serving, tmp_path: Path) -> None:
    """Each has the partitions that it led."""
    other = serving(tmp_path / "other")
    backups: list[OpenedBackup] = []
    for each, led in ((broker, {ORDERS_0}), (other, {ORDERS_1, PRICES_0})):
        each.led = led
        backups.append(each.opened(tmp_path / f"backup-{len(backups)}"))
    with pytest.raises(UserError, match="1 of the 2 partitions of orders are in these backups"):
        restored(tmp_path / "new", backups[:1])
    with pytest.raises(UserError, match=r"orders-0 is in .* and in"):
        restored(tmp_path / "new", [backups[0], backups[0]])
    done = restored(tmp_path / "new", backups)
    assert {*done.partitions} == {*broker.end}
    assert committed(tmp_path / "new") == {("shop", ORDERS_0): 7, ("till", ORDERS_0): 2}


# --- Refused, or broken off -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Wanted(topics=["none"]), "topic 'none' is in no backup"),
        (Wanted(users=True), "was made without --users"),
        (Wanted(acls=True), "was made without --acls"),
        (Wanted(cluster_id="a\nnode.id=9"), "is no cluster id"),
        (Wanted(cluster_id=""), ""),
    ],
)
def test_options_that_do_not_fit_the_backup(
    broker: Serving, tmp_path: Path, wanted: Wanted, why: str
) -> None:
    saved = broker.opened(tmp_path / "backup")
    if not why:  # an empty id is that of the backup
        assert restored(tmp_path / "new", [saved], wanted).cluster_id == CLUSTER
        return
    with pytest.raises(UserError, match=why):
        restored(tmp_path / "new", [saved], wanted)
    assert not (tmp_path / "new").exists()


def test_a_directory_that_is_not_empty(broker: Serving, tmp_path: Path) -> None:
    saved = broker.opened(tmp_path / "backup")
    before = sorted(path.name for path in broker.directory.iterdir())
    with pytest.raises(DataDirectoryError, match="is not empty: it has"):
        restored(broker.directory, [saved])
    assert sorted(path.name for path in broker.directory.iterdir()) == before


def test_a_place_inside_of_the_backup(broker: Serving, tmp_path: Path) -> None:
    saved = broker.opened(tmp_path / "backup")
    for place in (tmp_path / "backup", tmp_path / "backup" / "new"):
        with pytest.raises(UsageError, match=r"overlaps .*backup -> name a place outside"):
            restored(place, [saved])
    assert open_backup(tmp_path / "backup").manifest == saved.manifest


def test_a_target_that_cannot_be_a_directory(broker: Serving, tmp_path: Path) -> None:
    saved = broker.opened(tmp_path / "backup")
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "x", Path("/proc/none")):
        with pytest.raises(DataDirectoryError, match=r"be a directory: .* -> name an empty"):
            restored(place, [saved])


def test_a_restore_that_was_broken_off_goes_on(
    broker: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each topic, and between offsets and the end; no broker starts meanwhile."""
    target, saved, run = tmp_path / "new", broker.opened(tmp_path / "backup"), Adoption.run
    monkeypatch.setattr(restore_module, "BATCH_BYTES", 1)
    done: list[str] = []

    def failing(
        self: Adoption, sources: Sequence[Path], topics: Sequence[str] = (), *own: Any
    ) -> None:
        run(self, sources, topics, *own)
        done.append(str(topics))
        raise OSError(5, "power is gone")

    monkeypatch.setattr(Adoption, "run", failing)
    for count in (1, 2, 3):
        with pytest.raises(DataDirectoryError, match=r"power is gone -> .* run it again"):
            restored(target, [saved])
        assert len(done) == count
        with pytest.raises(DataDirectoryError, match="its restore has ended half way"):
            directory_format.load(target)
        with pytest.raises(DataDirectoryError, match="has a part of another restore"):
            restored(target, [saved], Wanted(topics=["orders"]))
    assert done == ["['orders']", "['prices']", "()"]
    restored(target, [saved])
    assert len(done) == 3
    assert directory_format.load(target) == 0
    assert committed(target)["shop", ORDERS_0] == 7


def test_killed_at_every_step(memory_path: Path) -> None:
    """A broker can start where there is nothing, or everything; the next run goes on."""
    broker = serving(memory_path / "data", {"orders": (ORDERS, 1)})
    broker.offsets = [OFFSETS[0]]
    saved = broker.opened(memory_path / "backup")
    data = b"".join(batch(3 * number, 3) for number in range(4))
    target, last = memory_path / "new", 0
    while is_killed_at(last, lambda: restored(target, [saved])):
        if not directory_format.is_unfinished(target):
            names = {path.name for path in target.glob("*")}
            begun = {f"{directory_format.FILE_NAME}.tmp", STATE_FILE}
            assert names <= begun or batches(target, ORDERS_0) == data
        restored(target, [saved])
        assert directory_format.load(target) == 0
        assert batches(target, ORDERS_0) == data
        assert node(target, records.topic_path(OFFSETS_TOPIC)) is not None
        shutil.rmtree(target, ignore_errors=True)
        last += 1
    assert last > 20 and directory_format.load(target) == 0


def test_a_mark_that_was_being_written(broker: Serving, tmp_path: Path) -> None:
    """A run that was killed there has made nothing else."""
    target = tmp_path / "new"
    target.mkdir()
    (target / f"{directory_format.FILE_NAME}.tmp").write_bytes(b"format=")
    restored(target, [broker.opened(tmp_path / "backup")])
    assert directory_format.load(target) == 0
    assert not (target / f"{directory_format.FILE_NAME}.tmp").exists()


def test_logs_that_a_killed_run_has_named(
    broker: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not made their topics, and did not undo anything."""
    target, saved, placed = tmp_path / "new", broker.opened(tmp_path / "backup"), adopted.placed

    def killed(logs: Iterable[adopted.Copied], directory: DataDirectory) -> None:
        placed(logs, directory)
        raise OSError(5, "killed")

    monkeypatch.setattr(adopted, "placed", killed)
    monkeypatch.setattr(adopted, "undone", lambda *_: None)
    with pytest.raises(DataDirectoryError, match="killed"):
        restored(target, [saved])
    assert (target / "orders-0").is_dir()
    monkeypatch.undo()
    restored(target, [saved])
    assert batches(target, ORDERS_0) == b"".join(batch(3 * number, 3) for number in range(4))
    assert directory_format.load(target) == 0


def test_a_damaged_segment_is_not_restored(broker: Serving, tmp_path: Path) -> None:
    """Byte 3 is of a base offset, which no CRC covers."""
    saved = broker.opened(tmp_path / "backup")
    path = saved.logs / str(PRICES_0) / f"{6:020d}.log"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataDirectoryError, match="is damaged: its digest is not that"):
        restored(tmp_path / "new", [saved])
    with pytest.raises(DataDirectoryError, match="its restore has ended half way"):
        directory_format.load(tmp_path / "new")


def test_a_batch_that_was_damaged_before_it_was_saved(broker: Serving, tmp_path: Path) -> None:
    path = broker.log(PRICES_0) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    saved = broker.opened(tmp_path / "backup")
    with pytest.raises(DataDirectoryError, match=r"prices-0.*the CRC is"):
        restored(tmp_path / "new", [saved])


# --- Transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        (b"", ABORT),
        (batch(15, 3) + marker(18, COMMIT), COMMIT),
        (marker(15, ABORT) + marker(16, COMMIT), ABORT),
        (marker(15, COMMIT, producer=8), ABORT),
    ],
    ids=["open", "committed later", "the first marker counts", "of another producer"],
)
def test_a_transaction_that_is_open_at_the_end(
    broker: Serving, tmp_path: Path, after: bytes, outcome: int
) -> None:
    """Another partition of it may have its marker below the end already."""
    broker.add(ORDERS_0, 12, batch(12, 3, attributes=TRANSACTIONAL, producer=9) + after)
    broker.end[ORDERS_0], broker.stable[ORDERS_0], broker.later[ORDERS_0] = 15, 12, 19
    saved = broker.opened(tmp_path / "backup")
    done = restored(tmp_path / "new", [saved])
    assert [each.committed for each in done.ended[ORDERS_0]] == [outcome == COMMIT]
    last = parse_batches(batches(tmp_path / "new", ORDERS_0))[-1]
    assert (last.base_offset, last.producer_id) == (15, 9)
    assert (last.records[0].key or b"")[3] == outcome


def test_state_is_of_one_restore(broker: Serving, tmp_path: Path) -> None:
    """A restore of other backups does not go on in its place."""
    one = broker.opened(tmp_path / "one")
    target = tmp_path / "new"
    target.mkdir()
    (target / STATE_FILE).write_text(json.dumps({"topics": []}))
    (target / "orders-0").mkdir()
    with pytest.raises(DataDirectoryError, match="has a part of another restore"):
        restored(target, [one])
    assert UUID(int=41) == one.manifest.partitions[ORDERS_0].topic_id
