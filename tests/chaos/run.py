"""A chaos run: workers by the dice, the broker killed in the middle, then the reckoning."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kbroker.testing import Broker
from kbroker.testing.process import ServerProcess, log_tail
from kbroker.types import ApiKey
from lab.ports import free_port
from tests.chaos import verify
from tests.chaos.consumers import LIBRARIES, OF_PROTOCOL
from tests.chaos.job import CLIENTS_OWN_STATUS, FENCED_STATUS, Job
from tests.chaos.journal import PRODUCED, REFUSED, Line, read
from tests.chaos.watch import Client, Watch, write
from tests.parity.requests import build
from tests.support.kafka import KafkaBroker

ROOT: Final = Path(__file__).parents[2]
TOPIC: Final = "chaos"
GROUP: Final = "chaos-group"
DRAIN_TIMEOUT_S: Final = 180.0
LEAVE_TIMEOUT_S: Final = 60.0
STOPPED_S: Final = (0.5, 9.0)  # some longer than a session, some not
STATIC_SHARE: Final = 0.25
AUTOMATIC_SHARE: Final = 0.25
FOREVER_NS: Final = 1 << 63


@dataclass(frozen=True)
class Settings:
    seconds: float = 60.0
    consumers: int = 30
    partitions: int = 60
    rate: int = 1_000  # records a second
    protocol: str = "eager"
    seed: int = 1
    broker: str = "kbroker"
    kills: int = 1
    every_s: float = 1.5  # between two events, on average
    clients: tuple[str, ...] = ()
    keep: Path | None = None


@dataclass
class Worker:
    """A process; `quiet` are the times in which it was stopped, or has gone."""

    name: str
    job: Job
    process: subprocess.Popen[bytes]
    stopped_until: float = 0.0
    quiet: list[tuple[int, int]] = field(default_factory=list)

    @property
    def stopped(self) -> bool:
        return self.stopped_until > 0


@dataclass
class Outcome:
    """Figures, whatever was violated, and the ends of clients by an error of their library."""

    figures: dict[str, object]
    violations: list[str]
    clients_own: list[str]


class Chaos:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._dice = random.Random(settings.seed)
        self._folder = Path(tempfile.mkdtemp(prefix="kbroker-chaos-"))
        self._clients = settings.clients or OF_PROTOCOL[settings.protocol]
        self._workers: list[Worker] = []
        self._gone: list[Worker] = []
        self._events: dict[str, int] = defaultdict(int)
        self._away: list[tuple[int, int]] = []  # times without a broker
        self._violations: list[str] = []
        self._clients_own: list[str] = []

    def run(self) -> Outcome:
        made = KafkaBroker if self.settings.broker == "kafka" else Broker
        with made(port=free_port()) as broker:
            self._create_topic(broker)
            watch = Watch(lambda: broker.bootstrap, GROUP, TOPIC, self.settings.partitions)
            watch.start()
            load = self._start_load(broker)
            try:
                self._upheaval(broker)
                self._drain(load, watch)
                outcome = self._reckoning(watch)
            finally:
                watch.stop()
                load.kill()
                processes = [w.process for w in [*self._workers, *self._gone]]
                for process in processes:
                    process.kill()
                for process in [load, *processes]:
                    process.wait()
            if "Traceback" in broker.log_text():
                outcome.violations.append(f"the broker's log: {log_tail(broker.log_text(), 40)}")
            if outcome.violations or outcome.clients_own:
                shutil.copy(broker.log_path, self._folder / "broker.log")
        if outcome.violations or outcome.clients_own or self.settings.keep:
            print(f"journals: {self._folder}")
        else:
            shutil.rmtree(self._folder)
        return outcome

    # -- actors

    def _create_topic(self, broker: ServerProcess) -> None:
        client = Client(broker.bootstrap)
        topic = {
            "name": TOPIC,
            "num_partitions": self.settings.partitions,
            "replication_factor": 1,
        }
        answer = client.ask(build(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=30_000))
        client.close()
        if answer.topics[0].error_code.value:
            raise RuntimeError(f"the topic was not created: {answer.topics[0].error_message}")

    def _python(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with open(self._folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _start_load(self, broker: ServerProcess) -> subprocess.Popen[bytes]:
        s = self.settings
        return self._python(
            *("load", "-m", "tests.chaos.load", broker.bootstrap, TOPIC),
            *(str(s.partitions), str(s.rate), str(self._folder / "load.journal")),
        )

    def _join(self, broker: ServerProcess) -> None:
        number = len(self._workers) + len(self._gone)
        client = self._dice.choice(self._clients)
        instance = None
        if self._dice.random() < STATIC_SHARE:
            alive = [w for w in self._gone if w.process.poll() is None]
            taken = {w.job.instance for w in [*self._workers, *alive]}
            free = [f"i{i}" for i in range(self.settings.consumers) if f"i{i}" not in taken]
            instance = self._dice.choice(free)
        name = f"w{number:03d}-{client}"
        job = Job(
            client=client,
            protocol=self.settings.protocol,
            bootstrap=broker.bootstrap,
            topic=TOPIC,
            group=GROUP,
            journal=str(self._folder / f"{name}.journal"),
            client_id=name,
            instance=instance,
            automatic=self._dice.random() < AUTOMATIC_SHARE,
        )
        process = self._python(name, "-m", "tests.chaos.worker", job.text())
        self._workers.append(Worker(name, job, process))
        self._events["joins"] += 1

    def _part(self, worker: Worker) -> None:
        worker.quiet.append((time.monotonic_ns(), FOREVER_NS))
        self._workers.remove(worker)
        self._gone.append(worker)

    # -- the upheaval

    def _upheaval(self, broker: ServerProcess) -> None:
        began = time.monotonic()
        over = began + self.settings.seconds
        kills = [
            began + self.settings.seconds * (i + 1) / (self.settings.kills + 1)
            for i in range(self.settings.kills)
        ]
        while time.monotonic() < over:
            if kills and time.monotonic() >= kills[0]:
                kills.pop(0)
                self._kill_broker(broker)
            self._event(broker)
            wake = time.monotonic() + self._dice.expovariate(1 / self.settings.every_s)
            while time.monotonic() < min(wake, over):
                self._go_on()
                self._see_the_dead()
                time.sleep(0.05)
        for worker in self._workers:
            worker.stopped_until = min(worker.stopped_until, time.monotonic())
        self._go_on()

    def _event(self, broker: ServerProcess) -> None:
        few = len(self._workers) < self.settings.consumers * 2 // 3
        many = len(self._workers) >= self.settings.consumers
        what = self._dice.choices(
            ("join", "leave", "kill", "stop"),
            (9 if few else 0 if many else 3, 0 if few else 2, 1, 2),
        )[0]
        awake = [w for w in self._workers if not w.stopped]
        if what == "join":
            for _ in range(3 if few else 1):
                self._join(broker)
        elif not awake:
            return
        elif what == "leave":
            worker = self._dice.choice(awake)
            worker.process.send_signal(signal.SIGTERM)
            self._part(worker)
            self._events["leaves"] += 1
        elif what == "kill":
            worker = self._dice.choice(awake)
            worker.process.kill()
            self._part(worker)
            self._events["kills"] += 1
        else:
            worker = self._dice.choice(awake)
            worker.process.send_signal(signal.SIGSTOP)
            pause = self._dice.uniform(*STOPPED_S)
            worker.stopped_until = time.monotonic() + pause
            now = time.monotonic_ns()
            worker.quiet.append((now, now + int((pause + 2) * 1e9)))
            self._events["stops"] += 1

    def _go_on(self) -> None:
        for worker in self._workers:
            if worker.stopped and time.monotonic() >= worker.stopped_until:
                worker.stopped_until = 0.0
                worker.process.send_signal(signal.SIGCONT)

    def _kill_broker(self, broker: ServerProcess) -> None:
        began = time.monotonic_ns()
        broker.kill9()
        time.sleep(self._dice.uniform(0.2, 3.0))
        broker.start()
        self._away.append((began, time.monotonic_ns() + 10 * verify.SECOND_NS))
        self._events["broker kills"] += 1

    def _see_the_dead(self) -> None:
        for worker in list(self._workers):
            status = worker.process.poll()
            if status is not None:
                self._part(worker)
                if status == FENCED_STATUS:
                    self._events["fenced"] += 1
                else:
                    self._note_an_end(worker, status)

    def _note_an_end(self, worker: Worker, status: int) -> None:
        log = (self._folder / f"{worker.name}.log").read_text(errors="replace").strip()
        kind = self._clients_own if status == CLIENTS_OWN_STATUS else self._violations
        kind.append(f"{worker.name} ended with status {status}: {log[-600:]}")

    # -- the end

    def _drain(self, load: subprocess.Popen[bytes], watch: Watch) -> None:
        load.send_signal(signal.SIGTERM)
        if load.wait(150) != 0:
            log = (self._folder / "load.log").read_text(errors="replace")
            self._violations.append(
                f"the producer ended with status {load.returncode}: {log[-600:]}"
            )
        ends = watch.ends()
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        began = time.monotonic()
        while not self._drained(watch, ends):
            self._see_the_dead()
            if time.monotonic() > deadline:
                self._violations.append(
                    f"not read to the end in {DRAIN_TIMEOUT_S:.0f} s:"
                    f" {self._behind(watch, ends)}; the group is {watch.states[-1:]}"
                )
                break
            time.sleep(0.1)
        self._events["drain ms"] = round((time.monotonic() - began) * 1000)
        self._see_the_dead()

    def _behind(self, watch: Watch, ends: dict[int, int]) -> list[tuple[int, int, int]]:
        last = watch.seen[-1].offsets if watch.seen else {}
        return [(p, last.get(p, -1), end) for p, end in ends.items() if last.get(p, -1) < end]

    def _drained(self, watch: Watch, ends: dict[int, int]) -> bool:
        if not watch.seen or not watch.states:
            return False
        offsets = watch.seen[-1].offsets
        settled = watch.states[-1].state == "Stable"
        settled = settled and watch.states[-1].members == len(self._workers)
        return settled and all(offsets.get(p, -1) >= end for p, end in ends.items() if end)

    def _leave_all(self) -> None:
        for worker in self._workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in list(self._workers):
            try:
                status = worker.process.wait(LEAVE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                kind = self._clients_own if worker.job.client in LIBRARIES else self._violations
                kind.append(f"{worker.name} did not leave in {LEAVE_TIMEOUT_S:.0f} s")
                continue
            if status not in (0, FENCED_STATUS):
                self._note_an_end(worker, status)
            self._part(worker)

    def _reckoning(self, watch: Watch) -> Outcome:
        self._leave_all()
        ends = watch.ends()
        watch.stop()
        write(watch, self._folder / "watch.txt")
        journals = {
            w.name: list(read(Path(w.job.journal)))
            for w in [*self._gone, *self._workers]
            if os.path.exists(w.job.journal)
        }
        load = list(read(self._folder / "load.journal"))
        processed = verify.Processed()
        for lines in journals.values():
            processed.add(lines, ends)
        found = self._violations
        found += verify.not_stored(load, ends)
        found += verify.not_processed(processed, ends)
        found += verify.went_back(watch.seen, ends)
        found += verify.commits_lost(journals, watch.seen)
        figures = self._figures(watch, ends, processed, journals)
        if self.settings.protocol == "cooperative":
            figures |= self._cooperative(watch, journals, load)
        return Outcome(figures, found, self._clients_own)

    def _cooperative(
        self, watch: Watch, journals: dict[str, list[Line]], load: list[Line]
    ) -> dict[str, object]:
        # kafka-python's poll waits for the rebalance, with Apache Kafka as with ours.
        reading = {n: lines for n, lines in journals.items() if n.endswith("confluent")}
        quiet = {w.name: [*w.quiet, *self._away] for w in [*self._gone, *self._workers]}
        produced: dict[int, list[int]] = defaultdict(list)
        for line in load:
            if line.kind == PRODUCED:
                produced[int(line.words[0])].append(line.ns)
        stays, wrong = verify.stays(reading, watch.states, quiet, produced)
        bounced = verify.bounced(journals, watch.states, quiet)
        self._violations += wrong
        return {
            "long rebalances": len(verify.long_rebalances(watch.states)),
            "partitions that stayed": stays.held,
            "of them read on": stays.read,
            # Meant for a member that was lost meanwhile, as a rule: a figure, not a violation.
            "given back and had again": len(bounced),
            "longest pause s": round(stays.longest_pause_ns / 1e9, 2),
        }

    def _figures(
        self,
        watch: Watch,
        ends: dict[int, int],
        processed: verify.Processed,
        journals: dict[str, list[Line]],
    ) -> dict[str, object]:
        refused: dict[str, int] = defaultdict(int)
        commits = 0
        for lines in journals.values():
            for line in lines:
                if line.kind == REFUSED:
                    refused[line.words[0] if line.words else "?"] += 1
                commits += line.kind == "committed"
        generations = sum(state.state == "Stable" for state in watch.states)
        return {
            "seed": self.settings.seed,
            "broker": self.settings.broker,
            "protocol": self.settings.protocol,
            "seconds": self.settings.seconds,
            "records": sum(ends.values()),
            "processed": processed.records,
            "processed again": processed.again,
            "commits answered": commits,
            "commits refused": json.dumps(refused),
            "times Stable": generations,
            "most members": max((state.members for state in watch.states), default=0),
            "OffsetFetch seen": len(watch.seen),
            "watch errors": json.dumps(watch.errors),
            **self._events,
        }
