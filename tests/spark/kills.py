"""kill -9 of the streaming job at seeded points, the broker killed and restarted meanwhile.

    python -m tests.spark.kills --kills 200 --seed 7

A producer writes all along: results, some of them twice as after a lost answer, and now and then
what cannot be read. Each kill ends a driver, Python and JVM together, at one of POINTS, and the
next driver goes on. In the end the table is compared with a plain read of the topic by another
client, row for row: what is in the table, what was set aside, and what is left without a writer's
retries.

The steps of the sink are exact: the driver kills itself there. The moments of Spark's own logs are
noticed by the kernel as names appear in the checkpoint, so a kill may come a little late;
`found` says what was on the disk afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import confluent_kafka

from kbroker.testing.plain import KEEPS_WHAT_IS_OLD, PlainBroker
from lab.ports import free_port
from spark_jobs import sink, tables
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import Ledger, unit_of
from spark_jobs.schema import RESULTS
from tests.clients.adapters import Admin
from tests.spark.kill_driver import LANDED
from tests.spark.watching import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = RESULTS.topic
PARTITIONS: Final = 2
OFFSETS_BEGUN: Final = "offset log begun"
OFFSETS_WRITTEN: Final = "offset log written"
COMMITS_BEGUN: Final = "commit log begun"
COMMITS_WRITTEN: Final = "commit log written"
ANY_TIME: Final = "any time"
LOGS: Final = {
    OFFSETS_BEGUN: ("offsets", False),
    OFFSETS_WRITTEN: ("offsets", True),
    COMMITS_BEGUN: ("commits", False),
    COMMITS_WRITTEN: ("commits", True),
}
POINTS: Final = (*sink.STEPS, *LOGS, ANY_TIME)
# Each leaves another of the states below; what the other points leave is one of these.
OF_EACH_KIND: Final = (sink.BEGUN, sink.WRITTEN, sink.COMMITTED, OFFSETS_BEGUN)

# The state on the disk after a kill, by the newest batch.
BETWEEN: Final = "between batches"
LOGGED: Final = "in the offset log only"
UNCOMMITTED: Final = "rows that were not committed"
UNFINISHED: Final = "in the ledger, not in the commit log"

ROUND_S_MAX: Final = 300.0
RECORDS_PER_S: Final = 60
BROKER_EVERY: Final = 4  # kills


@dataclass
class Outcome:
    """How often a point was killed at, and what was found afterwards."""

    points: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    broker_kills: int = 0
    records: int = 0
    unreadable: int = 0
    repeats: int = 0


class Writer(threading.Thread):
    """Writes until it is stopped, some records twice, some that cannot be read."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(name="writer")
        self._random = random.Random(seed)
        self._producer = confluent_kafka.Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
            "reconnect.backoff.max.ms": 200, "message.timeout.ms": 120_000, "log_level": 0,
        })  # fmt: skip
        self._stopping = threading.Event()
        self.failed: list[str] = []

    def run(self) -> None:
        run_id, number = str(uuid.UUID(int=self._random.getrandbits(128))), 0
        while not self._stopping.wait(1 / RECORDS_PER_S):
            number += 1
            for value in self._values(run_id, number):
                self._producer.produce(
                    TOPIC, value, run_id.encode(), number % PARTITIONS, on_delivery=self._note
                )
            self._producer.poll(0)
        if self._producer.flush(60):
            self.failed.append("not all records were delivered")

    def _values(self, run_id: str, number: int) -> list[bytes]:
        if self._random.random() < 0.1:
            return [b"\xff not readable %d" % number]
        value = RESULTS.encode({
            "schema_version": RESULTS.version, "run_id": run_id, "sequence": number,
            "event_time_ms": time.time_ns() // 1_000_000 - self._random.randrange(3_600_000),
            "kind": "figure", "study": "spark", "name": f"n{number}", "value": number / 8,
        })  # fmt: skip
        return [value] * (2 if self._random.random() < 0.1 else 1)

    def _note(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._stopping.set()
        self.join(120)


class Driver:
    """One driver in a process group of its own; what it says is kept for the case that it fails.

    It starts its session at once and lands from `go` on.
    """

    def __init__(self, place: Path, bootstrap: str, *arguments: str, topic: str = TOPIC) -> None:
        self._said = place / f"driver-{uuid.uuid4().hex}.txt"
        with open(self._said, "wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.kill_driver", bootstrap,
                 str(place / "tables"), topic, *arguments],
                stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def go(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: then its status says so
            self._process.stdin.write(b"go\n")
            self._process.stdin.close()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        return self._said.read_text(errors="replace")

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        """Until it has happened or the driver has ended."""
        deadline = time.monotonic() + ROUND_S_MAX
        while self.alive and not happened():
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} in {ROUND_S_MAX:g} s:\n{self.said()[-3000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Its status, when nothing of it is left, the JVM neither."""
        status = self._process.wait(ROUND_S_MAX)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return status
            time.sleep(0.01)
        raise AssertionError(f"process group {self._process.pid} does not end")


class Kills:
    """A broker, a topic, a writer, and one driver after the other."""

    def __init__(
        self,
        place: Path,
        kills: int,
        seed: int,
        say: Callable[[str], None] = lambda line: None,
        points: Sequence[str] = POINTS,
    ) -> None:
        self.place = place
        self.tables = str(place / "tables")
        self.outcome = Outcome()
        self._kills = kills
        self._points = points
        self._seed = seed
        self._random = random.Random(seed)
        self._say = say
        self._units: set[str] = set()

    def run(self, verify: Callable[[Kills, str], None]) -> Outcome:
        """All kills, then what is left is landed and `verify(self, bootstrap)` is called."""
        settings = {**KEEPS_WHAT_IS_OLD, "auto.create.topics.enable": False}
        with PlainBroker(settings, port=free_port()) as broker:
            Admin(broker.bootstrap).create(TOPIC, PARTITIONS)
            writer = Writer(broker.bootstrap, self._seed)
            writer.start()
            plan = [(point, self._random.choice((1, 1, 2))) for point in self._plan()]
            driver = self._driver(broker, *plan[0])
            try:
                for number, (point, nth) in enumerate(plan):
                    following = (
                        self._driver(broker, *plan[number + 1])
                        if number + 1 < len(plan)
                        else Driver(self.place, broker.bootstrap, LANDED)
                    )
                    try:
                        self._round(broker, driver, number, point, nth)
                    finally:
                        driver, done = following, driver
                        done.kill()
                writer.stop()
                assert writer.failed == []
                driver.go()
                assert driver.end() == 0, driver.said()[-3000:]
            finally:
                driver.kill()
                writer.stop()
            verify(self, broker.bootstrap)
        return self.outcome

    def _driver(self, broker: PlainBroker, point: str, nth: int) -> Driver:
        exact = (point, str(nth)) if point in sink.STEPS else ()
        return Driver(self.place, broker.bootstrap, *exact)

    def _plan(self) -> list[str]:
        """Every point as often as any other; the first is one that needs no checkpoint."""
        plan: list[str] = []
        while len(plan) < self._kills:
            plan += self._random.sample(self._points, len(self._points))
        plan = plan[: self._kills]
        first = next(at for at, point in enumerate(plan) if point in sink.STEPS)
        plan[0], plan[first] = plan[first], plan[0]
        return plan

    def _round(
        self, broker: PlainBroker, driver: Driver, number: int, point: str, nth: int
    ) -> None:
        began = time.monotonic()
        before = self._newest()
        driver.wait_for(lambda: "session" in driver.said(), "session")
        if point in LOGS:
            self._at_log(broker, driver, number, point, nth)
        else:
            self._begin(broker, driver, number)
        if point == ANY_TIME:
            driver.wait_for(lambda: self._newest() > before, "batch")
            time.sleep(self._random.uniform(0, 1.5))
            driver.kill()
        status = driver.end()
        assert status == -signal.SIGKILL, f"{point}: status {status}:\n{driver.said()[-3000:]}"
        self.outcome.points[point] += 1
        found = self._found()
        self.outcome.found[found] += 1
        self._say(f"{number + 1:3}/{self._kills} {time.monotonic() - began:5.1f} s"
                  f"  {point} ({nth}): {found}")  # fmt: skip

    def _begin(self, broker: PlainBroker, driver: Driver, number: int) -> None:
        """The driver lands; every so often the broker goes away meanwhile and comes back."""
        driver.go()
        if number % BROKER_EVERY == BROKER_EVERY - 1:
            broker.kill9()
            broker.start()
            self.outcome.broker_kills += 1

    def _at_log(
        self, broker: PlainBroker, driver: Driver, number: int, point: str, nth: int
    ) -> None:
        checkpoint = self._checkpoint()
        watch = Watch([checkpoint / "offsets", checkpoint / "commits"])
        directory, by_rename = LOGS[point]
        left = nth

        def wanted(where: str, name: str, renamed: bool) -> bool:
            nonlocal left
            of_log = name.isdigit() if by_rename else name.startswith(".")
            left -= where == directory and renamed is by_rename and of_log
            return left <= 0

        try:
            self._begin(broker, driver, number)
            assert watch.wait(wanted, lambda: driver.alive, ROUND_S_MAX), driver.said()[-3000:]
            driver.kill()
        finally:
            watch.close()

    def _checkpoint(self) -> Path:
        (query,) = (self.place / "tables/_checkpoints" / TOPIC).iterdir()
        return max(query.iterdir())

    def _newest(self, log: str = "offsets") -> int:
        """The newest batch in one of Spark's logs; -1: there is none."""
        try:
            names = os.listdir(self._checkpoint() / log)
        except (FileNotFoundError, ValueError):
            return -1
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _found(self) -> str:
        ledger = Ledger(LocalFiles(), f"{self.tables}/{RESULTS.name}").state()
        query_id = json.loads((self._checkpoint() / "metadata").read_bytes())["id"]
        offsets, commits = self._newest(), self._newest("commits")
        in_ledger = ledger.batches.get(query_id, -1)
        committed = {unit.unit for unit in (*ledger.units, *ledger.quarantine)}
        data = self.place / "tables" / RESULTS.name / tables.DATA
        there = (
            {unit for name in os.listdir(data) if (unit := unit_of(name))}
            if data.exists()
            else set()
        )
        news, self._units = there - self._units, there
        assert commits <= in_ledger <= offsets <= in_ledger + 1, (offsets, in_ledger, commits)
        if in_ledger > commits:
            return UNFINISHED
        if news - committed:
            return UNCOMMITTED
        return LOGGED if offsets > in_ledger else BETWEEN


# --- the comparison -----------------------------------------------------------------------------

Record = tuple[int, int, int, bytes, bytes]  # partition, offset, timestamp, key, value


def plain_read(bootstrap: str) -> list[Record]:
    """All of the topic, by another client than Spark's."""
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": bootstrap, "group.id": "plain", "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    })  # fmt: skip
    found: list[Record] = []
    try:
        ends = {}
        for partition in range(PARTITIONS):
            place = confluent_kafka.TopicPartition(TOPIC, partition, 0)
            ends[partition] = consumer.get_watermark_offsets(place, timeout=30)[1]
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0) for partition in ends])
        deadline = time.monotonic() + 120
        while len(found) < sum(ends.values()):
            assert time.monotonic() < deadline, f"{len(found)} of {ends}"
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None
                of_record = (message.key(), message.value())
                at = (message.partition(), message.offset(), message.timestamp()[1])
                found.append((*at, *of_record))
    finally:
        consumer.close()
    return sorted(found)


def compare(spark: SparkSession, kills: Kills, bootstrap: str) -> None:
    """AssertionError names the first row that is not as it should be."""
    good: list[tuple[object, ...]] = []
    bad: list[tuple[object, ...]] = []
    first: dict[tuple[str, int], tuple[int, int]] = {}
    for partition, offset, stamp, key, value in plain_read(bootstrap):
        try:
            read = json.loads(value)
        except ValueError:
            bad.append((partition, offset, stamp, key, value))
            continue
        good.append((partition, offset, stamp, read["run_id"], read["sequence"],
                     read["event_time_ms"], read["name"], read["value"]))  # fmt: skip
        first.setdefault((read["run_id"], read["sequence"]), (partition, offset))
    where = ("source_partition", "source_offset", "unix_millis(source_time) AS stamp")
    fields = ("run_id", "sequence", "event_time_ms", "name", "value")
    table = tables.read(spark, kills.tables, RESULTS.name, repeats=True)
    same(sorted(map(tuple, table.selectExpr(*where, *fields).collect())), good, "the table")
    aside = tables.quarantine(spark, kills.tables).selectExpr(*where, "key", "value").collect()
    same(sorted((*row[:3], bytes(row[3]), bytes(row[4])) for row in aside), bad, "set aside")
    once = tables.read(spark, kills.tables, RESULTS.name).selectExpr(*where[:2]).collect()
    same(sorted(map(tuple, once)), sorted(first.values()), "without retries")
    outcome = kills.outcome
    outcome.records, outcome.unreadable = len(good) + len(bad), len(bad)
    outcome.repeats = len(good) - len(first)


def same(found: list[tuple[object, ...]], wanted: list[tuple[object, ...]], what: str) -> None:
    if found == wanted:
        return
    lost, extra = set(wanted) - set(found), set(found) - set(wanted)
    twice = [row for row, count in Counter(found).items() if count > 1]
    raise AssertionError(
        f"{what}: {len(found)} rows, {len(wanted)} records; lost {sorted(lost)[:3]},"
        f" not in the topic {sorted(extra)[:3]}, twice {twice[:3]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.spark.kills")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    from spark_jobs.session import session

    def verify(kills: Kills, bootstrap: str) -> None:
        spark = session("local[1]", "kbroker-kills", source="kbroker")
        try:
            compare(spark, kills, bootstrap)
        finally:
            spark.stop()

    with tempfile.TemporaryDirectory(prefix="kills-") as place:
        outcome = Kills(Path(place), options.kills, options.seed, print).run(verify)
    print(f"the table equals the topic: {outcome}")


if __name__ == "__main__":
    main()
