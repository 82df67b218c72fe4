"""Nothing changes by failing: a start that fails at any step leaves the files as they were.

A broker in this process is given topics, records, deleted records; what it leaves, by a clean stop
and by a crash, is started again with one step after the other made to fail. Files are compared byte
for byte, the metadata store row by row.

What may differ: the locks, which name a pid; in the store how many sessions and controllers there
have been. After a crash, where the logs have been read: indexes, which are made again, and leader
epochs, of which there is a new one. And where network threads have run, after a crash, the broker
was in service and has stopped cleanly: the files of a clean stop.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import NewTopic
from kbroker.replica._replica import Replica
from kbroker.server.broker import Broker
from kbroker.server.lifecycle import Lifecycle, Step
from tests.support.record_batches import build_batch
from tests.support.same_machine import copy_as_the_same

LOCKS = {".lock", "metadata.lock"}
STORE = {"metadata.db", "metadata.db-wal"}
MADE_ANEW = re.compile(r".*\.(time)?index|.*/leader-epoch-checkpoint|.*/partitions/\d+/state")
STOPPED = re.compile(r".*\.snapshot|.*/\.kafka_cleanshutdown|.*/(replication|recovery-point)-.*")
WAIT_S = 60


class Refusal(Exception):
    """What the step fails with."""


def make(data: Path, fail: str = "") -> Broker:
    values = [
        f"log.dirs={data / 'one'},{data / 'two'}",
        "listeners=PLAINTEXT://127.0.0.1:0",
        "admin.listeners=http://127.0.0.1:0",
        "log.index.size.max.bytes=4096",  # each file is copied and read for each step
    ]
    broker = Broker(BrokerConfig.load(None, {}, values), data / "one", data.parent / "ready.json")
    if fail:
        steps = [refusing(step) if step.name == fail else step for step in broker._lifecycle._steps]
        broker._lifecycle = Lifecycle(steps)
    return broker


def refusing(step: Step) -> Step:
    def refuse() -> None:
        raise Refusal(step.name)

    return replace(step, start=refuse)


def steps() -> list[str]:
    return [step.name for step in make(Path("nowhere"))._lifecycle._steps]


def ask(request: Callable[[Callable[[Any], None]], None]) -> Any:
    answered, answers = threading.Event(), []

    def done(answer: Any) -> None:
        answers.append(answer)
        answered.set()

    request(done)
    assert answered.wait(WAIT_S)
    return answers[0]


def log_of(broker: Broker, topic: str, index: int) -> Replica:
    log = broker._replicas.partition(topic, index)
    assert log is not None
    return log


def fill(broker: Broker) -> None:
    """Two topics over both directories; of some partitions the first records are deleted."""
    assert broker._controller is not None
    controller = broker._controller
    wanted = [NewTopic("kept", 4, 1), NewTopic("cut", 4, 1, configs={"segment.bytes": "1048576"})]
    ask(lambda done: controller.create_topics(wanted, False, done))
    for topic in ("kept", "cut"):
        for index in range(4):
            log = log_of(broker, topic, index)
            for sequence in range(5):
                log.append(build_batch(producer_id=7, producer_epoch=0, base_sequence=sequence))
    cut = {log_of(broker, "cut", index).name: index for index in range(4)}
    assert broker._replicas.delete_records(cut) == cut


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a clean stop leaves, and what a crash does."""
    root = tmp_path_factory.mktemp("left")
    broker = make(root / "clean" / "data")
    (root / "clean").mkdir()
    broker.start()
    fill(broker)
    for _ in broker._logs.checkpoint():
        pass
    # What a checkpoint by the clock is about to rename may be gone before it is copied.
    copy_as_the_same(root / "clean", root / "crash", leave_out="*.tmp")
    assert broker.stop()
    return {end: root / end for end in ("clean", "crash")}


def tree(data: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(data.rglob("*")):
        name = str(path.relative_to(data))
        if path.is_dir():
            found[name] = "a directory"
        elif path.name not in LOCKS | STORE:
            found[name] = path.read_bytes()
    return found | rows(data / "one" / "metadata.db")


def rows(database: Path) -> dict[str, object]:
    """Every node but the count of controllers, what is gone with its session, and where the
    directories are: these are copies."""
    if not database.exists():
        return {}
    connection = sqlite3.connect(database)
    try:
        select = "SELECT parent || '/' || name, data, version FROM node WHERE owner = 0"
        return {
            path: (data, version)
            for path, data, version in connection.execute(select)
            if "controller_epoch" not in path and "/brokers/directories/" not in path
        }
    finally:
        connection.close()


def ends(broker: Broker) -> dict[str, tuple[int, int]]:
    return {
        str(name): (log.log_start_offset, log.log_end_offset)
        for name, log in broker._replicas.replicas().items()
    }


EXPECTED = {f"kept-{n}": (0, 5) for n in range(4)} | {f"cut-{n}": (n, 5) for n in range(4)}


@pytest.mark.parametrize("end", ["clean", "crash"])
@pytest.mark.parametrize("step", steps())
def test_a_start_that_fails_changes_nothing(
    left: dict[str, Path], tmp_path: Path, step: str, end: str
) -> None:
    copy_as_the_same(left[end], tmp_path / "copy")
    data = tmp_path / "copy" / "data"
    before = tree(data)
    with pytest.raises(Refusal, match=step):
        make(data, fail=step).start()
    after = tree(data)
    may_change = [] if end == "clean" else allowed_behind_a_crash(step)
    changed = {
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name) and not any(p.fullmatch(name) for p in may_change)
    }
    assert changed == set()
    broker = make(data)
    broker.start()
    assert ends(broker) == EXPECTED
    assert broker._logs.clean is (end == "clean" or STOPPED in may_change)
    assert broker.stop()


def test_a_store_with_settings_that_cannot_be_read_is_let_go_of(
    left: dict[str, Path], tmp_path: Path
) -> None:
    copy_as_the_same(left["clean"], tmp_path / "copy")
    data = tmp_path / "copy" / "data"
    database = sqlite3.connect(data / "one" / "metadata.db")
    with database:
        database.execute("INSERT INTO node VALUES ('/config/brokers', '1', 'no JSON', 0, 0, 0)")
    database.close()
    for _ in range(2):  # the second one does not find it in use
        with pytest.raises(DataDirectoryError, match="/config/brokers/1 cannot be read"):
            make(data).start()


def allowed_behind_a_crash(step: str) -> list[re.Pattern[str]]:
    order = steps()
    read = order.index(step) > order.index("logs")
    served = order.index(step) > order.index("network threads")
    return [MADE_ANEW] * read + [STOPPED] * served
