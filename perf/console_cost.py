"""What the console costs: memory, the time of pages, and what others wait for beside its visitors.

    python -m perf.console_cost                     # all parts; about 25 minutes, 40 at the most
    python -m perf.console_cost --parts memory,pages --rounds 6 --json FILE
    python -m perf.console_cost --topics 500 --gigabytes 0.2 --rounds 2 --block-s 2   # a small run

- memory: a broker alone is started without the console and with it, in turn. Counted is the memory
  that it holds without a visitor, and what one visitor adds who opens every page, and searches.
  Its metrics have been asked for once before: what the admin port imports is not the console's.
- pages: two brokers with ZooKeeper, one of which has `--topics` topics and a compacted topic, for
  which `--gigabytes` were written and cleaned. Counted is the time of the page of all topics, and
  of the first page of messages, newest first: from the end of the log, and from its middle, where
  the cleaner has left gaps.
- beside: the same two brokers. A producer at a fixed rate waits for the leader (acks=1), and
  another one for the follower too (acks=all): how far replication lags. In each round both run
  alone, alone again (the null test), beside four searches of the compacted topic, and beside four
  visitors who load the page of all topics again and again; the order turns from round to round.

The visitors are threads of this process, as is the load, which needs no GIL. The machine has to be
quiet. No round begins once `--minutes` are over.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from lab.ports import free_port
from perf import batch, requests
from perf._load import LoadError
from perf.brokers import Broker, BrokerError, KbrokerBroker
from perf.cells import PLAIN_PRODUCE, CellError
from perf.client import ClientError
from perf.cluster.brokers import KbrokerCluster
from perf.compacted import configs, fill
from perf.console_visits import Reloading, VisitError, Visitor, all_pages
from perf.deletions import create
from perf.histogram import Histogram
from perf.judge import Bar, ratio_bar, side, together, value_bar
from perf.load_thread import LoadThread
from perf.log.cleaning import clean_from_now_on, until_cleaned
from perf.machine import machine_line, version_line
from perf.process import Watch, proportional_bytes, settled_memory
from perf.spec import Partition, Run, Stream
from perf.tables import bar_lines

PARTS: Final = ("memory", "pages", "beside")
ROUNDS: Final = 15
MEMORY_ROUNDS_MAX: Final = 6
VISITORS: Final = 4
LOOKS: Final = 5  # of a page in a round, of which the median counts
RECORD_BYTES: Final = 1_000
IN_FLIGHT: Final = 5
SETTLE_S: Final = 0.5  # between two blocks, so that the work of one does not count in the next
SOME_GIGABYTES: Final = 0.02
MB: Final = 1e6
BESIDE_MAX, MORE_MB_MAX, FIRST_MESSAGE_MS_MAX, TOPICS_PAGE_MS_MAX = 1.1, 12.0, 200.0, 300.0
WITHOUT_VISITOR_MAX: Final = 1.01
COMPACTED: Final = "compacted"
MESSAGES: Final = f"/ui/topics/{COMPACTED}/messages"
SEARCH: Final = f"{MESSAGES}?value=this+is+in+no+record"
TOPICS: Final = "/ui/topics"
ALONE, AGAIN, SEARCHES, PAGES = "alone", "alone again", "4 searches", "4 x page of topics"
BLOCKS: Final = (ALONE, AGAIN, SEARCHES, PAGES)
WITH, WITHOUT = "with the console", "without it"
SETTINGS: Final = {
    "log.cleaner.backoff.ms": "500", "log.initial.task.delay.ms": "0",
    "auto.create.topics.enable": "false", "admin.console.messages": "on",
}  # fmt: skip

Say = Callable[[str], None]


@dataclass(frozen=True)
class Held:
    """Resident memory of a broker, in MB; the last three are 0 where it has no console. `new_mb`:
    before anything was asked for at the admin port."""

    kind: str
    round: int
    quiet: bool
    new_mb: float
    idle_mb: float
    idle_pss_mb: float
    visited_mb: float = 0.0
    visited_pss_mb: float = 0.0
    searched_mb: float = 0.0

    @property
    def more_mb(self) -> float:
        return self.visited_mb - self.idle_mb


@dataclass(frozen=True)
class Timed:
    """A page."""

    kind: str
    round: int
    quiet: bool
    ms: float


@dataclass(frozen=True)
class Beside:
    """A block of both producers."""

    kind: str
    round: int
    quiet: bool
    leader_p99_us: float
    follower_p99_us: float
    pages_per_s: float


class Found(NamedTuple):
    memory: Sequence[Held]
    pages: Sequence[Timed]
    beside: Sequence[Beside]


class Plan(NamedTuple):
    """How much is run. `until_s`: no round begins later, by time.monotonic()."""

    parts: Sequence[str]
    rounds: int
    topics: int
    gigabytes: float
    rate: float
    block_s: float
    until_s: float

    def numbers(self, most: int = sys.maxsize) -> Iterator[int]:
        for number in range(min(self.rounds, most)):
            if time.monotonic() >= self.until_s:
                return
            yield number


# --- memory ---------------------------------------------------------------------------------------


def held(root: Path, number: int, kind: str) -> Held:
    port = free_port()
    enabled = "auto" if kind == WITH else "false"
    overrides = (f"admin.listeners=http://127.0.0.1:{port}", f"admin.console.enable={enabled}")
    broker = KbrokerBroker(root / f"memory-{number}-{enabled}", overrides=overrides)
    with broker, closing(Visitor(f"127.0.0.1:{port}")) as visitor:
        with broker.client() as client:
            topic = client.create_topic("some", 3)
            fill(client, topic, SOME_GIGABYTES)
        watch = Watch([os.getpid(), broker.pid])
        new = settled_memory(broker.pid).resident
        visitor.look("/metrics")
        idle, idle_pss = settled_memory(broker.pid).resident, proportional_bytes(broker.pid)
        found = [new, idle, idle_pss]
        if kind == WITH:
            for path in all_pages(topic.name, "", 1):
                if "groups/" not in path:  # there is no group
                    visitor.look(path)
            found += [settled_memory(broker.pid).resident, proportional_bytes(broker.pid)]
            for _ in range(LOOKS):
                visitor.look(f"/ui/topics/{topic.name}/messages?value=none")
            found.append(settled_memory(broker.pid).resident)
        return Held(kind, number, watch.guard().quiet, *(each / MB for each in found))


def measure_memory(plan: Plan, root: Path, say: Say) -> list[Held]:
    found: list[Held] = []
    for number in plan.numbers(MEMORY_ROUNDS_MAX):
        for kind in (WITH, WITHOUT)[:: 1 if number % 2 else -1]:
            one = held(root, number, kind)
            found.append(one)
            words = (
                f"round {number + 1}, {kind}: new {one.new_mb:.1f} MB, idle {one.idle_mb:.1f} MB"
            )
            if kind == WITH:
                words += f", after all pages +{one.more_mb:.1f} MB"
                words += f", after searches +{one.searched_mb - one.idle_mb:.1f} MB"
            say(words + _noise(one.quiet))
    return found


# --- pages ----------------------------------------------------------------------------------------


class Bench:
    """Two brokers, the first of which leads everything and serves the console."""

    def __init__(self, cluster: KbrokerCluster, plan: Plan, say: Say) -> None:
        self.cluster, self.plan, self.say = cluster, plan, say
        self.broker: Final[Broker] = cluster.nodes[1]
        self.address: Final = self.broker.tells_at
        self._own_pids = [os.getpid(), *cluster.pids]
        self._middle = 0

    def watch(self) -> Watch:
        return Watch(list(self._own_pids))

    def prepare(self) -> None:
        with self.broker.client() as client:
            began_s = time.monotonic()
            create(client, [f"topic-{number:05}" for number in range(self.plan.topics)])
            self.say(f"{self.plan.topics} topics after {time.monotonic() - began_s:.0f} s")
            began_s = time.monotonic()
            topic = client.create_topic(COMPACTED, 1, configs(self.plan.gigabytes), [1])
            records = fill(client, topic, self.plan.gigabytes)
            self._middle = records // 2
            self.say(f"{self.plan.gigabytes} GB written after {time.monotonic() - began_s:.0f} s")
            self.paced = client.create_topic("paced", 1, replicas=[1])
            self.copied = client.create_topic("paced-copied", 1, replicas=[1, 2])
        began_s = time.monotonic()
        clean_from_now_on(self.broker, COMPACTED)
        until_cleaned(self.broker, COMPACTED)
        left = sum(
            each.stat().st_size
            for each in (self.broker.directory / "data" / f"{COMPACTED}-0").glob("*.log")
        )
        self.say(f"cleaned after {time.monotonic() - began_s:.0f} s: {left / 1e9:.2f} GB are left")
        self.cluster.wait_in_sync(1, "paced-copied")

    def measure_pages(self) -> list[Timed]:
        """Each once before it counts: the console is imported with its first visit."""
        paths = {
            "page of topics": TOPICS,
            "page of topics, JSON": f"{TOPICS}?format=json",
            "newest messages": MESSAGES,
            "newest messages below the middle": f"{MESSAGES}?offset={self._middle}",
        }
        found: list[Timed] = []
        with closing(Visitor(self.address)) as visitor:
            for path in paths.values():
                visitor.look(path)
            for number in self.plan.numbers():
                for kind, path in paths.items():
                    time.sleep(SETTLE_S)
                    watch = self.watch()
                    took = sorted(visitor.look_ms(path) for _ in range(LOOKS))
                    one = Timed(kind, number, watch.guard().quiet, took[LOOKS // 2])
                    found.append(one)
                    self.say(f"round {number + 1}, {kind}: {one.ms:.0f} ms{_noise(one.quiet)}")
        return found

    # --- beside -----------------------------------------------------------------------------------

    def measure_beside(self) -> list[Beside]:
        """A first block of each kind is warm-up."""
        found: list[Beside] = []
        for kind in BLOCKS:
            self._block(kind, -1, SETTLE_S)
        for number in self.plan.numbers():
            turn = number % len(BLOCKS)
            for kind in BLOCKS[turn:] + BLOCKS[:turn]:
                one = self._block(kind, number, self.plan.block_s)
                found.append(one)
                self.say(
                    f"round {number + 1}, {kind}: p99 {one.leader_p99_us:,.0f} us of the leader,"
                    f" {one.follower_p99_us:,.0f} us with the follower;"
                    f" {one.pages_per_s:.1f} pages/s{_noise(one.quiet)}"
                )
        return found

    def _block(self, kind: str, number: int, seconds: float) -> Beside:
        time.sleep(SETTLE_S)
        with self._visitors(kind) as visitors:
            pages = visitors.pages if visitors else 0
            watch = self.watch()
            leader, follower = self._produce(seconds)
            quiet = watch.guard().quiet
            pages = visitors.pages - pages if visitors else 0
        return Beside(kind, number, quiet, leader, follower, pages / seconds)

    def _visitors(self, kind: str) -> AbstractContextManager[Reloading | None]:
        if kind in (SEARCHES, PAGES):
            path = SEARCH if kind == SEARCHES else TOPICS
            return Reloading(self.address, path, VISITORS)
        return nullcontext()

    def _produce(self, seconds: float) -> tuple[float, float]:
        """The p99 in us of both producers, from when each request was meant to be sent."""
        body = batch.of_records(RECORD_BYTES, timestamp_ms=time.time_ns() // 1_000_000)
        streams = []
        for topic, acks in ((self.paced, 1), (self.copied, -1)):
            one = requests.produce(PLAIN_PRODUCE, topic, [(Partition(0), body)], acks=acks)
            streams.append(
                Stream(
                    "produce", PLAIN_PRODUCE, (one,), acks=acks, in_flight=IN_FLIGHT,
                    rate=self.plan.rate,
                )
            )  # fmt: skip
        load = LoadThread(Run(self.broker.host, self.broker.port, tuple(streams), window_s=seconds))
        load.start()
        found = load.join()["streams"]
        for stream in found:
            if stream["errors"] or not stream["requests"]:
                raise CellError(f"produce: error code {stream['first_error']}")
        p99 = [Histogram.from_native(each["latency"]).percentile(99) / 1e3 for each in found]
        return p99[0], p99[1]


def measure(plan: Plan, root: Path, say: Say) -> Found:
    memory = measure_memory(plan, root, say) if "memory" in plan.parts else []
    if not {"pages", "beside"} & set(plan.parts):
        return Found(memory, [], [])
    cluster = KbrokerCluster(root / "cluster", 2, settings=SETTINGS)
    cluster.nodes[1].tell_figures()
    with cluster:
        bench = Bench(cluster, plan, say)
        bench.prepare()
        pages = bench.measure_pages() if "pages" in plan.parts else []
        return Found(memory, pages, bench.measure_beside() if "beside" in plan.parts else [])


# --- what may be concluded ------------------------------------------------------------------------


def bars(found: Found) -> list[Bar]:
    of = {kind: [one for one in found.memory if one.kind == kind] for kind in (WITH, WITHOUT)}
    without = together(*(side(of[kind], lambda one: one.idle_mb) for kind in (WITH, WITHOUT)))
    every = [
        ratio_bar("memory without a visitor, by without a console", WITHOUT_VISITOR_MAX, "times",
                  without),
        value_bar("memory that the first visitor adds", MORE_MB_MAX, "MB",
                  [(one.more_mb, one.quiet) for one in of[WITH]]),
    ]  # fmt: skip
    for kind in dict.fromkeys(one.kind for one in found.pages):
        bar = TOPICS_PAGE_MS_MAX if kind.startswith("page") else FIRST_MESSAGE_MS_MAX
        values = [(one.ms, one.quiet) for one in found.pages if one.kind == kind]
        every.append(value_bar(kind, bar, "ms", values))
    figures: tuple[tuple[str, Callable[[Beside], float]], ...] = (
        ("p99 of produce", _leader), ("p99 until the follower has it", _follower),
    )  # fmt: skip
    for kind in (SEARCHES, PAGES):
        for name, figure in figures:
            blocks = {
                each: side([one for one in found.beside if one.kind == each], figure)
                for each in (kind, ALONE, AGAIN)
            }
            null = together(blocks[AGAIN], blocks[ALONE])
            ratio = together(blocks[kind], blocks[ALONE])
            every.append(ratio_bar(f"{name} beside {kind}", BESIDE_MAX, "times", ratio, [null]))
    return every


def _leader(one: Beside) -> float:
    return one.leader_p99_us


def _follower(one: Beside) -> float:
    return one.follower_p99_us


def _noise(quiet: bool) -> str:
    return "" if quiet else " (not quiet)"


# --- the command ----------------------------------------------------------------------------------


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m perf.console_cost", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="written, then compacted")
    parser.add_argument("--rate", type=float, default=500.0, help="records a second, of each")
    parser.add_argument("--block-s", type=float, default=10.0, help="of a block of producers")
    parser.add_argument("--minutes", type=float, default=40.0, help="no round begins later")
    parser.add_argument("--dir", type=Path, help="where the data are, while it runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    options.parts = tuple(options.parts.split(","))
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"--parts: {', '.join(unknown)} is none of {', '.join(PARTS)}")
    if min(options.rounds, options.topics, options.gigabytes, options.rate, options.block_s) <= 0:
        parser.error("all numbers have to be above 0")
    return options


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    plan = Plan(
        options.parts, options.rounds, options.topics, options.gigabytes, options.rate,
        options.block_s, time.monotonic() + 60 * options.minutes,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="kbroker-console-cost-", dir=options.dir) as place:
        try:
            found = measure(plan, Path(place), _say)
        except (BrokerError, CellError, ClientError, LoadError, OSError, VisitError) as error:
            print(f"console_cost: {error}", file=sys.stderr)
            return 1
    every = bars(found)
    print(f"{machine_line()}; kbroker {version_line()}; {plan.topics} topics,", end="")
    print(f" {plan.gigabytes:g} GB, {plan.rate:g} records/s of each producer")
    print("\n".join(bar_lines(every)))
    if options.json:
        document: Any = {
            part: [asdict(one) for one in getattr(found, part)] for part in Found._fields
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(bar.fine for bar in every) else 2


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
