"""Kafka Connect with `exactly.once.source.support=enabled`: two distributed workers, a source of
numbers (programs/java/Numbers.java), kills of the worker that runs its task, of the other one and
of the broker. Each number is in the topic once, and in order.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kbroker.testing.process import ServerProcess
from lab.ports import free_port
from tests.clients.agents.programs import program
from tests.exactly_once import world
from tests.exactly_once.checker import each_once, nothing_open
from tests.support import kafka_classes

MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
NAME: Final = "numbers"
TOPIC: Final = "numbered"
RATE: Final = 400  # records a second
WORKERS: Final = 2
GOES_ON_S: Final = 120.0
ANSWER_S: Final = 30.0
LIVES_S: Final = (0.5, 2.0)
PARTIES: Final = ("worker with the task", "other worker", "broker")
SETTINGS: Final = {
    "group.id": "connect",
    "exactly.once.source.support": "enabled",
    **{f"{each}.storage.topic": f"connect-{each}" for each in ("config", "offset", "status")},
    **{f"{each}.storage.replication.factor": 1 for each in ("config", "offset", "status")},
    "offset.storage.partitions": 3,
    "status.storage.partitions": 1,
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "scheduled.rebalance.max.delay.ms": 1_000,
    "session.timeout.ms": 3_000,
    "heartbeat.interval.ms": 500,
    "rebalance.timeout.ms": 5_000,
    "task.shutdown.graceful.timeout.ms": 2_000,
    "reconnect.backoff.max.ms": 200,
}


class Worker:
    """One process; its address is its own while it is killed and started."""

    def __init__(self, bootstrap: str, place: Path) -> None:
        place.mkdir()
        self.address = f"127.0.0.1:{free_port()}"
        settings = {
            **SETTINGS,
            "bootstrap.servers": bootstrap,
            "listeners": f"http://{self.address}",
        }
        file = place / "worker.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._log = (place / "log.txt").open("ab")
        self._command = kafka_classes.command(
            MAIN, str(file), classes=program("java"), heap="-Xmx384m", log="warn"
        )
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._log.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """None where it does not answer, or is about to answer something else."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                return json.loads(answer.read() or b"{}")
        except (OSError, urllib.error.HTTPError):
            return None


class Workers:
    def __init__(self, server: ServerProcess, place: Path, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self._all = [Worker(server.bootstrap, place / f"worker-{n}") for n in range(WORKERS)]
        self.kills: Counter[str] = Counter()

    def begin(self) -> None:
        config = {"connector.class": "Numbers", "topic": TOPIC, "records.per.second": RATE,
                  "tasks.max": 1, "exactly.once.support": "required"}  # fmt: skip
        self._until(lambda: self._ask("PUT", f"/connectors/{NAME}/config", config), "it is made")
        self.goes_on()

    def end(self) -> None:
        self._until(lambda: self._ask("PUT", f"/connectors/{NAME}/stop"), "it stops")
        self._until(lambda: self._status() == "STOPPED", "it has stopped")

    def kill(self, party: str) -> None:
        # Not synchronisation: the dice say how long a process lives before it is killed.
        time.sleep(self._dice.uniform(*LIVES_S))
        self.kills[party] += 1
        if party == "broker":
            self._server.kill9()
            self._server.start()
        else:
            runs = self._until(self._runs_the_task, "a worker runs the task")
            with_task = party == "worker with the task"
            (one,) = (each for each in self._all if (each.address == runs) is with_task)
            one.kill()
            one.start()
        self.goes_on()

    def goes_on(self) -> None:
        before = world.ends_of(self._server.bootstrap, TOPIC).get(0, 0)
        self._until(
            lambda: world.ends_of(self._server.bootstrap, TOPIC).get(0, 0) > before + RATE / 2,
            "numbers are written",
        )

    def _runs_the_task(self) -> str | None:
        """Its address."""
        found = self._ask("GET", f"/connectors/{NAME}/status")
        running = [each for each in (found or {}).get("tasks", []) if each["state"] == "RUNNING"]
        return str(running[0]["worker_id"]) if running else None

    def _status(self) -> str:
        found = self._ask("GET", f"/connectors/{NAME}/status")
        return "" if found is None else str(found["connector"]["state"])

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        for each in self._all:
            if (answer := each.ask(method, path, body)) is not None:
                return answer
        return None

    @staticmethod
    def _until(holds: Callable[[], Any], what: str) -> Any:
        answers: list[Any] = []

        def answered() -> bool:
            answers[:] = [holds()]
            return answers[0] not in (None, False)

        world.until(answered, what, GOES_ON_S)
        return answers[0]

    def close(self) -> None:
        for each in self._all:
            each.close()


def run(dice: random.Random, say: Callable[[str], None], rounds: int = 2) -> list[str]:
    with (
        world.one_broker() as server,
        TemporaryDirectory(prefix="connect-") as place,
        ExitStack() as running,
    ):
        world.create(server.bootstrap, TOPIC, partitions=1)
        workers = Workers(server, Path(place), dice)
        running.callback(workers.close)
        workers.begin()
        for _ in range(rounds):
            for party in PARTIES:
                began_s = time.monotonic()
                workers.kill(party)
                say(f"connect: {party} killed, {time.monotonic() - began_s:.1f} s")
        workers.end()
        opened, ends = world.settled(server.bootstrap, [TOPIC, "connect-config", "connect-offset"])
        found = world.read(server.bootstrap, TOPIC, 1)
        say(f"connect: {len(found[0]):,} numbers, kills {dict(workers.kills)}")
        wanted = {0: [b"%d" % number for number in range(len({*found[0]}))]}
        return [*each_once(wanted, found), *nothing_open(opened, ends)]
