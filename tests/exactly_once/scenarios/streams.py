"""Kafka Streams' word count with `exactly_once_v2`, unchanged: one instance, three, and one again,
while instances and the broker are killed. Every word's count rises by one with each of its words.

Its group is one of the classic protocol, or a streams group (KIP-1071), whose tasks the coordinator
assigns; it has standby copies then.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import confluent_kafka

from kbroker.protocol import messages
from kbroker.testing.process import ServerProcess
from kbroker.types import ApiKey
from tests.exactly_once import world
from tests.exactly_once.checker import nothing_open, rising_by_one
from tests.exactly_once.world import PARTITIONS, TIMEOUT_S
from tests.support import jars, kafka_classes, requirements
from tests.support.share_client import ShareClient

WORD_COUNT: Final = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
IN: Final = "streams-plaintext-input"
OUT: Final = "streams-wordcount-output"
WORDS: Final = 20
RATE: Final = 200  # lines a second, of a word each
GOES_ON_S: Final = 90.0
STOP_S: Final = 60.0
CLASSIC: Final = "classic"
STREAMS: Final = "streams"
APPLICATION: Final = "streams-wordcount"
# By group protocol: what the broker is set to, and each instance. Members that were killed are
# missed soon.
OF_BROKER: Final[Mapping[str, Mapping[str, object]]] = {
    CLASSIC: {},
    STREAMS: {
        "unstable.feature.versions.enable": True,
        "group.streams.session.timeout.ms": 2_000,
        "group.streams.min.session.timeout.ms": 2_000,
        "group.streams.heartbeat.interval.ms": 500,
        "group.streams.min.heartbeat.interval.ms": 500,
        "group.streams.num.standby.replicas": 1,
    },
}
_OF_INSTANCE: Final[Mapping[str, str]] = {
    CLASSIC: "session.timeout.ms=2000\nheartbeat.interval.ms=500\n",
    STREAMS: "group.protocol=streams\n",
}
LIVES_S: Final = (0.5, 2.0)


class Words(threading.Thread):
    """Writes lines of one word, drawn by dice, until it is stopped."""

    def __init__(self, bootstrap: str, dice: random.Random) -> None:
        super().__init__(name="words")
        self._dice = dice
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0,
             "delivery.timeout.ms": 600_000, "reconnect.backoff.max.ms": 200}
        )  # fmt: skip
        self._ends = threading.Event()
        self.sent: Counter[bytes] = Counter()

    def run(self) -> None:
        while not self._ends.wait(1 / RATE):
            word = b"word%d" % self._dice.randrange(WORDS)
            partition = self._dice.randrange(PARTITIONS)
            self._producer.produce(IN, word, partition=partition)
            self._producer.poll(0)
            self.sent[word] += 1

    def stop(self) -> None:
        self._ends.set()
        self.join()

    def finish(self) -> Counter[bytes]:
        self.stop()
        if self._producer.flush(TIMEOUT_S):
            raise RuntimeError("the input was not written")
        return self.sent


class Instance:
    """One process of the application, with a directory of state that stays when it is killed."""

    def __init__(self, bootstrap: str, place: Path, protocol: str) -> None:
        place.mkdir()
        settings = place / "streams.properties"
        settings.write_text(
            f"bootstrap.servers={bootstrap}\nstate.dir={place}/state\n"
            "processing.guarantee=exactly_once_v2\ncommit.interval.ms=100\n"
            f"reconnect.backoff.max.ms=200\n{_OF_INSTANCE[protocol]}"
        )
        self._log = (place / "log.txt").open("ab")
        self._command = kafka_classes.command(
            WORD_COUNT, str(settings), kafka=jars.STREAMS, log="warn"
        )
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        finally:
            self._process.kill()

    def close(self) -> None:
        self.kill()
        self._log.close()


class Counting:
    """The application under its kills."""

    def __init__(
        self, server: ServerProcess, place: Path, dice: random.Random, protocol: str
    ) -> None:
        self._server = server
        self._protocol = protocol
        self._place = place
        self._dice = dice
        self.instances: list[Instance] = []
        self.kills: Counter[str] = Counter()

    def scale(self, count: int) -> None:
        while len(self.instances) < count:
            name = f"instance-{time.monotonic_ns()}"
            place = self._place / name
            self.instances.append(Instance(self._server.bootstrap, place, self._protocol))
        while len(self.instances) > count:
            self.instances.pop(0).stop()
        self.goes_on()

    def kill(self, party: str) -> None:
        # Not synchronisation: the dice say how long a process lives before it is killed.
        time.sleep(self._dice.uniform(*LIVES_S))
        if party == "broker":
            self._server.kill9()
            self._server.start()
        else:
            killed = self._dice.choice(self.instances)
            killed.kill()
            killed.start()
        self.kills[party] += 1
        self.goes_on()

    def goes_on(self) -> None:
        """Something that was not counted at the time of the call is counted."""
        before = sum(world.ends_of(self._server.bootstrap, OUT).values())
        world.until(
            lambda: sum(world.ends_of(self._server.bootstrap, OUT).values()) > before + WORDS,
            "words are counted",
            GOES_ON_S,
        )

    def close(self) -> None:
        for each in self.instances:
            each.close()


def run(
    dice: random.Random, say: Callable[[str], None], rounds: int = 2, protocol: str = CLASSIC
) -> list[str]:
    requirements.jars(jars.STREAMS)
    with (
        world.one_broker(OF_BROKER[protocol]) as server,
        TemporaryDirectory(prefix="streams-") as place,
        ExitStack() as running,
    ):
        world.create(server.bootstrap, IN, OUT)
        if protocol == STREAMS:
            with ShareClient(server.bootstrap) as client:
                client.raise_level("streams.version")
        words = Words(server.bootstrap, dice)
        counting = Counting(server, Path(place), dice, protocol)
        running.callback(counting.close)
        running.callback(words.stop)
        words.start()
        for count in (1, 3, 1):
            counting.scale(count)
            for _ in range(rounds):
                for party in ("instance", "broker"):
                    began_s = time.monotonic()
                    counting.kill(party)
                    took_s = time.monotonic() - began_s
                    say(f"streams: {count} instances, {party} killed, {took_s:.1f} s")
        if group_type(server.bootstrap) != protocol:
            raise AssertionError(f"the group is no {protocol} group")
        wanted = words.finish()

        def total() -> int:
            return sum(len(each) for each in counts_of(server.bootstrap).values())

        world.until(lambda: total() >= wanted.total(), "every word is counted")
        for each in counting.instances:
            each.stop()
        internal = [name for name in topics(server.bootstrap) if name.startswith("streams-")]
        opened, ends = world.settled(server.bootstrap, internal)
        say(f"streams: {wanted.total():,} words, kills {dict(counting.kills)}")
        return [
            *rising_by_one(counts_of(server.bootstrap), wanted),
            *nothing_open(opened, ends),
        ]


def group_type(bootstrap: str) -> str:
    """Of the application's group, once its coordinator has loaded it."""
    found: list[str] = []

    def is_listed() -> bool:
        with ShareClient(bootstrap) as client:
            answer = client.ask(ApiKey.LIST_GROUPS, 5, messages.list_groups.Request())
        found.extend(each.group_type for each in answer.groups if each.group_id == APPLICATION)
        return bool(found)

    world.until(is_listed, "the group is listed")
    return found[0]


def counts_of(bootstrap: str) -> dict[bytes, list[int]]:
    """All counts of each word, in their order: a word's are all in one partition."""
    counts: defaultdict[bytes, list[int]] = defaultdict(list)
    for each in world.messages(bootstrap, OUT, PARTITIONS):
        key, value = each.key(), each.value()
        assert isinstance(key, bytes) and isinstance(value, bytes)
        counts[key].append(int.from_bytes(value, "big"))
    return counts


def topics(bootstrap: str) -> list[str]:
    with world.Client(bootstrap) as client:
        return list(client.metadata(None).topics)
