"""The streaming job left running for a while, and what grows meanwhile.

    nice python -m tests.spark.soak --place /tmp/soak --minutes 30

A broker under a steady load, the job with a batch every 2 s and live windows, maintenance in a loop
with a grace of minutes instead of a day, a report now and then. The broker is killed and started
again, the job stopped by SIGTERM and by kill -9; after a third of the time nothing disturbs it any
more. PLACE/figures.jsonl has a line every 10 s: files, memory, descriptors, threads; the JVM's heap
is that after a full collection, once a minute. events.log says what was done to them, and at the
end whether the tables have every record of the topics once.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kbroker.errors import KafkaError, UserError
from kbroker.peer.client import Client
from kbroker.peer.messages import NewTopic
from kbroker.peer.producer import Producer
from kbroker.protocol.record_batch import Record
from kbroker.testing.plain import PlainBroker
from spark_jobs.files import LocalFiles
from spark_jobs.ledger import DIRECTORY, Ledger
from spark_jobs.schema import METRICS, PROGRESS_TOPIC, TABLES

SAMPLE_S: Final = 10
HEAP_EVERY: Final = 6  # samples
MAINTAIN_EVERY_S: Final = 120
REPORT_EVERY_S: Final = 400
GRACE_MS: Final = 120_000
LOAD_TOPICS: Final = {"orders": 4, "clicks": 1}
RECORDS_PER_S: Final = 200
_MAINTAIN: Final = f"""
import sys
from spark_jobs.maintain import Plan, maintain
from spark_jobs.session import session
spark = session("local[1]", "soak-maintain", source="kbroker")
try:
    maintain(spark, sys.argv[1], Plan(grace_ms={GRACE_MS}), say=print)
finally:
    spark.stop()
"""


class Load:
    """Samples as a broker of many partitions writes them, and records of other topics."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.failed = 0
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        sequence, begun_ms = 0, time.time_ns() // 1_000_000
        while not self._stop.wait(1):
            try:
                with Client(self._bootstrap) as client:
                    there = client.metadata(None).topics
                    new = [NewTopic(t, n) for t, n in LOAD_TOPICS.items() if t not in there]
                    if new:
                        client.create_topics(new)
                    while not self._stop.wait(1):
                        sequence = self._second(client, sequence, begun_ms)
            except (KafkaError, UserError, OSError):
                self.failed += 1

    def _second(self, client: Client, sequence: int, begun_ms: int) -> int:
        for topic, partitions in LOAD_TOPICS.items():
            for partition in range(partitions):
                records = [Record(b"k%d" % n, b"v" * 200) for n in range(RECORDS_PER_S)]
                Producer(client, topic, partition=partition).send(records)
                self.sent += len(records)
        now_ms = time.time_ns() // 1_000_000
        rows = []
        for partition in range(40):
            rows.append({
                "schema_version": 1, "broker_id": 77, "run_ms": begun_ms, "sequence": sequence,
                "event_time_ms": now_ms, "interval_ms": 1000, "metric_name": "PartitionMessages",
                "topic": "orders", "partition": partition, "message_count": 10 + partition,
                "bytes_in": 1000,
            })  # fmt: skip
            sequence += 1
        junk = [Record(None, b"{oops")] if sequence % 400 == 0 else []
        Producer(client, METRICS.topic, partition=0).send(
            [Record(b"77", json.dumps(row).encode()) for row in rows] + junk
        )
        return sequence


class Job:
    """The streaming job as a process group; begun again when it is asked for."""

    def __init__(self, place: Path, bootstrap: str, more: list[str]) -> None:
        self._place = place
        topics = [word for t in (*(s.topic for s in TABLES.values()), *LOAD_TOPICS)
                  for word in ("--topic", t)]  # fmt: skip
        self._command = [
            sys.executable, "-m", "spark_jobs.stream", "--bootstrap-server", bootstrap,
            "--tables", str(place / "tables"), "--trigger", "2", "--live", *topics, *more,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._place / "stream.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def stop(self) -> str:
        """By SIGTERM."""
        assert self._process is not None
        began_s = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        try:
            status: object = self._process.wait(90)
        except subprocess.TimeoutExpired:
            status = "not within 90 s"
            self.kill9()
        return f"SIGTERM: exit {status} after {time.monotonic() - began_s:.1f} s"

    def kill9(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def count_files(place: Path) -> tuple[int, int, int]:
    """Files, bytes, most names in one directory."""
    files = size = most = 0
    for where, folders, names in os.walk(place):
        files += len(names)
        most = max(most, len(names) + len(folders))
        for name in names:
            try:
                size += os.stat(os.path.join(where, name)).st_size
            except FileNotFoundError:
                pass
    return files, size, most


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if parent == pid:
                found += [int(entry.name), *children(int(entry.name))]
    return found


def of_process(pid: int) -> dict[str, int]:
    """Resident KiB, descriptors, threads; {} for a process that is no more."""
    try:
        status = dict(line.split(":", 1) for line in
                      Path(f"/proc/{pid}/status").read_text().splitlines())  # fmt: skip
        return {"rss_kib": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]),
                "fds": len(os.listdir(f"/proc/{pid}/fd"))}  # fmt: skip
    except (OSError, KeyError):
        return {}


def java_of(pids: list[int]) -> int:
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return pid
        except OSError:
            pass
    return 0


def heap(pid: int, place: Path) -> dict[str, int]:
    """Live bytes and objects by `jcmd GC.class_histogram`, which collects first; metaspace."""
    figures: dict[str, int] = {}
    try:
        text = subprocess.run(["jcmd", str(pid), "GC.class_histogram"], capture_output=True,
                              text=True, timeout=60).stdout  # fmt: skip
        (place / f"heap-{int(time.time())}.txt").write_text("\n".join(text.splitlines()[:400]))
        total = next(line for line in reversed(text.splitlines()) if line.startswith("Total"))
        figures["live_objects"], figures["live_bytes"] = map(int, total.split()[1:3])
        text = subprocess.run(["jcmd", str(pid), "VM.metaspace", "basic"], capture_output=True,
                              text=True, timeout=60).stdout  # fmt: skip
        (place / "metaspace.txt").write_text(text)
        lines = subprocess.run(["jstat", "-gc", str(pid)], capture_output=True, text=True,
                               timeout=60).stdout.splitlines()  # fmt: skip
        names, values = lines[0].split(), lines[1].split()
        figures["metaspace_kib"] = int(float(values[names.index("MU")]))
        figures["classes_kib"] = int(float(values[names.index("CCSU")]))
    except (subprocess.SubprocessError, StopIteration, IndexError, ValueError, OSError):
        pass
    return figures


def figures(job: Job, place: Path, with_heap: bool) -> dict[str, Any]:
    tables = place / "tables"
    found: dict[str, Any] = {"at_s": time.time(), "pid": job.pid}
    below = children(job.pid)
    java = java_of(below)
    found["python"], found["java"] = of_process(job.pid), of_process(java)
    found["others"] = [of_process(pid) for pid in below if pid != java]
    for name in ("tables", "tables/_checkpoints", "tmp"):
        found[name] = count_files(place / name)
    for name in sorted(os.listdir(tables) if tables.exists() else []):
        ledger = tables / name / DIRECTORY
        if ledger.exists():
            commits, folds = Ledger(LocalFiles(), str(tables / name)).numbers()
            newest = commits[-1] if commits else 0
            units = len(LocalFiles().entries(str(tables / name / "data")))
            found[f"ledger.{name}"] = [len(commits), newest, len(folds), units]
    if with_heap and java:
        found["heap"] = heap(java, place)
    return found


def run(options: argparse.Namespace) -> None:
    place = Path(options.place)
    place.mkdir(parents=True)
    (place / "tmp").mkdir()
    os.environ["TMPDIR"] = str(place / "tmp")
    os.environ["SPARK_LOCAL_DIRS"] = str(place / "tmp")
    began_s = time.monotonic()

    def say(line: str) -> None:
        with open(place / "events.log", "a") as log:
            log.write(f"{time.time():.0f} {time.monotonic() - began_s:6.0f} s: {line}\n")

    with PlainBroker({"metrics.topic.enable": True, "auto.create.topics.enable": False}) as broker:
        load = Load(broker.bootstrap)
        load.start()
        job = Job(place, broker.bootstrap, options.more)
        job.start()
        done = threading.Event()

        def now_and_then(every_s: float, name: str, command: list[str]) -> None:
            while not done.wait(every_s):
                started_s = time.monotonic()
                with open(place / f"{name}.log", "ab") as log:
                    try:
                        ran = subprocess.run(command, stdout=log, stderr=log, timeout=300)
                        status: object = ran.returncode
                    except subprocess.TimeoutExpired:
                        status = "not within 300 s"
                say(f"{name}: exit {status}, {time.monotonic() - started_s:.1f} s")

        tables = str(place / "tables")
        report = [sys.executable, "-m", "spark_jobs.report", "--tables", tables, "--out",
                  str(place / "report.html"), "--json", str(place / "report.json"),
                  "--master", "local[1]"]  # fmt: skip
        others = [
            threading.Thread(target=now_and_then, args=(
                MAINTAIN_EVERY_S, "maintain", [sys.executable, "-c", _MAINTAIN, tables])),
            threading.Thread(target=now_and_then, args=(REPORT_EVERY_S, "report", report)),
        ]  # fmt: skip
        for thread in others:
            thread.start()
        whole_s = options.minutes * 60
        trouble: list[tuple[float, str, Callable[[], object]]] = [
            (0.12 * whole_s, "broker: kill -9", broker.kill9),
            (0.12 * whole_s + 20, "broker: start", broker.start),
            (0.20 * whole_s, "job", lambda: (say(job.stop()), job.start())),
            (0.27 * whole_s, "job: kill -9", lambda: (job.kill9(), job.start())),
        ]
        turn = 0
        try:
            while time.monotonic() - began_s < whole_s:
                if trouble and time.monotonic() - began_s >= trouble[0][0]:
                    _, name, do = trouble.pop(0)
                    say(name)
                    do()
                if not job.alive:
                    say("the job ended by itself")
                    job.start()
                line = figures(job, place, turn % HEAP_EVERY == 0)
                with open(place / "figures.jsonl", "a") as out:
                    out.write(json.dumps(line) + "\n")
                turn += 1
                time.sleep(SAMPLE_S)
            done.set()
            for thread in others:
                thread.join(320)
            load.stop()
            time.sleep(30)  # for the last batches
            say(job.stop())
            say(f"sent {load.sent}, {load.failed} times away")
            compare(broker.bootstrap, place, say)
        finally:
            done.set()
            job.kill9()


def compare(bootstrap: str, place: Path, say: Callable[[str], None]) -> None:
    """Each topic's ends against the ledger's, and the rows against the offsets."""
    from spark_jobs import tables
    from spark_jobs.session import session
    from spark_jobs.source import PeerInspector

    spark = session("local[2]", "soak-compare", source="kbroker")
    root = str(place / "tables")
    inspector = PeerInspector(bootstrap)
    for topic in (METRICS.topic, PROGRESS_TOPIC, *LOAD_TOPICS):
        name = next((s.name for s in TABLES.values() if s.topic == topic), "plain")
        ends = tables.ledger(spark, root, name).ends()[topic][1]
        state = inspector.describe(topic)
        assert state is not None
        landed = tables.read(spark, root, name, repeats=True).where(f"source_topic = '{topic}'")
        aside = tables.quarantine(spark, root).where(f"source_topic = '{topic}'")
        places = ("source_partition", "source_offset")
        ids = landed.select(*places).unionByName(aside.select(*places))
        rows, distinct, upto = ids.count(), ids.distinct().count(), sum(ends.values())
        there = sum(until for _, until in state.offsets.values())
        same = "SAME" if rows == distinct == upto else "DIFFER"
        say(f"{topic}: ends at {there}, table at {upto}; rows {rows}, distinct {distinct}: {same}")
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.spark.soak")
    parser.add_argument("--place", required=True, help="a directory that is not there yet")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("more", nargs="*", help="options of the streaming job, after --")
    run(parser.parse_args())


if __name__ == "__main__":
    main()
