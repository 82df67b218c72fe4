"""Idle transactional ids: what each holds in memory after a load, and how long the load takes.

Two directories are made once: one with many ids, which have names of 30 bytes and have never had a
transaction, and one with a single id in each partition of `__transaction_state`. Each round starts
a broker on either, after a clean stop. It has loaded when it describes one id of each partition;
memory is what is resident once it has settled. Both figures are the difference of the two brokers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from perf.bars import MIB
from perf.brokers import Broker
from perf.cluster.brokers import until
from perf.judge import Bar, value_bar
from perf.log.rounds import new_broker, order
from perf.log.starts import stop_cleanly
from perf.measurement import OURS, Measurement
from perf.process import Watch, cpu_ns, settled_memory
from perf.stats import estimate
from perf.tables import interval
from perf.transactions.ids import Pair, made, one_of_each, served
from perf.transactions.lanes import drive, to
from perf.transactions.producer import await_coordinator

MEMORY_BAR_BYTES, LOAD_BAR_S = 400.0, 1.0
NAME_BYTES: Final = 30
STEM: Final = "idle-"


@dataclass(frozen=True)
class IdsPlan:
    """How much is run."""

    brokers: tuple[str, ...] = (OURS,)
    rounds: int = 7
    ids: int = 100_000

    @property
    def names(self) -> list[str]:
        return [f"{STEM}{number:0{NAME_BYTES - len(STEM)}}" for number in range(self.ids)]

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


class Loaded(NamedTuple):
    """One start."""

    served_s: float  # from exec until every partition is loaded
    cpu_s: float  # of the process until then
    resident_bytes: int
    held_bytes: int | None  # None: that is not known
    quiet: bool


@dataclass(frozen=True)
class Held:
    """Of a round: a start with the ids, less one without."""

    broker: str
    round: int
    ids: int
    full: Loaded
    empty: Loaded

    @property
    def quiet(self) -> bool:
        return self.full.quiet and self.empty.quiet

    @property
    def load_s(self) -> float:
        return self.full.served_s - self.empty.served_s

    @property
    def load_cpu_s(self) -> float:
        return self.full.cpu_s - self.empty.cpu_s

    @property
    def bytes_each(self) -> float:
        return (self.full.resident_bytes - self.empty.resident_bytes) / self.ids

    @property
    def held_bytes_each(self) -> float | None:
        if self.full.held_bytes is None or self.empty.held_bytes is None:
            return None
        return (self.full.held_bytes - self.empty.held_bytes) / self.ids

    def to_json(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "full": self.full._asdict(),
            "empty": self.empty._asdict(),
            "load_s": self.load_s,
            "bytes_each": self.bytes_each,
            "held_bytes_each": self.held_bytes_each,
        }


class Stopped(NamedTuple):
    """Two brokers of one kind that do not run: with all ids, and with a few."""

    full: Broker
    empty: Broker
    probes: Sequence[str]


def _prepared(kind: str, root: Path, plan: IdsPlan, stack: ExitStack) -> Stopped:
    names = plan.names
    probes = one_of_each(names)
    full, empty = (new_broker(kind, root / f"{kind}-{name}") for name in ("full", "empty"))
    for broker, some in ((full, names), (empty, probes)):
        stack.callback(broker.discard)
        broker.start()
        with broker.client() as client:
            await_coordinator(client, names[0])
        pairs: dict[str, Pair] = {}
        drive((made(name, pairs) for name in some), to(broker))
        stop_cleanly(broker)
    return Stopped(full, empty, probes)


def _loaded(broker: Broker, probes: Sequence[str]) -> Loaded:
    broker.prepare()
    watch = Watch([os.getpid()])
    broker.launch()
    watch.include(broker.pid)

    def loaded() -> bool:
        broker.check_alive()
        with broker.client() as client:
            return served(client, probes)

    served_s = until(f"{broker.name} has loaded the ids", loaded) - broker.started_ns / 1e9
    cpu_s, quiet = cpu_ns(broker.pid) / 1e9, watch.guard().quiet
    resident, held = settled_memory(broker.pid).resident, broker.held_bytes()
    stop_cleanly(broker)
    return Loaded(served_s, cpu_s, resident, held, quiet)


def measure(plan: IdsPlan, root: Path, say: Callable[[str], None]) -> list[Held]:
    """A round is one start by each, without the ids and with them."""
    found = []
    with ExitStack() as stack:
        stopped: dict[str, Stopped] = {}
        for kind in plan.brokers:
            began_s = time.monotonic()
            stopped[kind] = _prepared(kind, root, plan, stack)
            say(f"{kind}: {plan.ids:,} ids made in {time.monotonic() - began_s:.1f} s")
        for number in range(plan.rounds):
            for kind in order(plan.brokers, number):
                full, empty, probes = stopped[kind]
                without = _loaded(empty, probes)
                found.append(Held(kind, number, plan.ids, _loaded(full, probes), without))
                one = found[-1]
                say(
                    f"round {number + 1} {kind:8} {one.bytes_each:,.0f} B an id, loaded in"
                    f" {one.load_s:.2f} s ({one.load_cpu_s:.2f} s of CPU)"
                )
    return found


def bars(found: Sequence[Held], ids: int) -> list[Bar]:
    """kbroker's own. Other processes do not change its memory: every value counts."""
    ours = [one for one in found if one.broker == OURS]
    of = f"{ids:,} idle ids"
    return [
        value_bar(f"resident memory of each of {of}", MEMORY_BAR_BYTES, "B",
                  [(one.bytes_each, True) for one in ours]),
        value_bar(f"load of {of}", LOAD_BAR_S, "s",
                  [(one.load_s, one.quiet) for one in ours]),
    ]  # fmt: skip


def report(found: Sequence[Held], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for kind in dict.fromkeys(one.broker for one in found):
        some = [one for one in found if one.broker == kind]
        held = [one.held_bytes_each for one in some]
        columns = (
            [one.load_s for one in some],
            [one.load_cpu_s for one in some],
            [one.empty.served_s for one in some],
            [one.full.resident_bytes / MIB for one in some],
            [one.bytes_each for one in some],
            [each for each in held if each is not None],
        )
        rows.append([kind, *(interval(estimate(each)) for each in columns)])
    head = ("broker", "load s", "CPU s", "start s", "resident MB", "B each", "held B each")
    return Measurement.of(plan, head, rows, bars(found, plan["ids"]), found, lambda one: (
        (f"load of {one.ids} idle transactional ids", one.load_s, "s"),
        (f"memory of each of {one.ids} idle transactional ids", one.bytes_each, "B"),
    ))  # fmt: skip
