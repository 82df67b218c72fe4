"""Whether a read_committed fetch leaves by sendfile as an uncommitted one does.

The logs are those of `reading.py`. The same number of fetches walks the same bytes at either
isolation level, one after the other, while strace counts: by sendfile must come as many bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from perf.brokers import Broker
from perf.judge import Bar, ratio_bar, side, together
from perf.log.rounds import new_broker, order
from perf.measurement import OURS, Measurement
from perf.sendfiles import counted
from perf.stats import estimate
from perf.tables import interval, number
from perf.transactions.reading import ISOLATIONS, Log

SENT_BAR: Final = 1.01
KIB: Final = 1 << 10
INVERSE: Final = (
    "at least as many bytes is held as its inverse; how many calls one fetch needs also depends on"
    " the room in the socket"
)


@dataclass(frozen=True)
class SendfilePlan:
    """How much is run."""

    brokers: tuple[str, ...] = (OURS,)
    rounds: int = 6
    shares: tuple[int, ...] = (0, 1, 50)  # aborted, of a hundred transactions
    sizes: tuple[int, ...] = (16 << 10, 1 << 20)
    log_bytes: int = 16 << 20
    fetches: int = 64

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


@dataclass(frozen=True)
class Sent:
    """One walk."""

    broker: str
    round: int
    share: int
    size: int
    isolation: str
    fetches: int
    calls: int
    sent_bytes: int
    quiet: bool = True  # a count is a count

    @property
    def bytes_each(self) -> float:
        return self.sent_bytes / self.fetches

    @property
    def calls_each(self) -> float:
        return self.calls / self.fetches

    @property
    def title(self) -> str:
        return f"{self.size >> 10} KB, {self.share} % aborted"

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def _walk(
    broker: Broker, log: Log, plan: SendfilePlan, which: tuple[int, int, str], number: int
) -> Sent:
    share, size, isolation = which
    with counted(broker.measured_pid, broker.directory / "strace") as found:
        read = log.read_so_often(ISOLATIONS.index(isolation), size, plan.fetches)
    fetches = read["streams"][0]["answered"]
    return Sent(
        broker.name, number, share, size, isolation, fetches, found.calls, found.sent_bytes
    )  # fmt: skip


def measure(plan: SendfilePlan, root: Path, say: Callable[[str], None]) -> list[Sent]:
    """A round is one walk at each broker, of each share, size and isolation level."""
    found = []
    cells = [
        (share, size, isolation)
        for share in plan.shares
        for size in plan.sizes
        for isolation in ISOLATIONS
    ]
    with ExitStack() as stack:
        logs: dict[tuple[str, int], Log] = {}
        brokers: dict[str, Broker] = {}
        for name in plan.brokers:
            broker = brokers[name] = new_broker(name, root / name)
            stack.callback(broker.discard)
            broker.start()
            for share in plan.shares:
                logs[name, share] = Log(broker, share, plan.log_bytes)
        for round_ in range(plan.rounds):
            for which in cells:
                for name in order(plan.brokers, round_):
                    one = _walk(brokers[name], logs[name, which[0]], plan, which, round_)
                    found.append(one)
                    say(
                        f"round {round_ + 1} {name:8} {one.title}, {one.isolation}:"
                        f" {one.bytes_each / KIB:,.1f} KB, {one.calls_each:.2f} calls a fetch"
                    )
    return found


def bars(found: Sequence[Sent]) -> list[Bar]:
    """kbroker's uncommitted by its committed."""
    ours = [one for one in found if one.broker == OURS]
    out = []
    for title in dict.fromkeys(one.title for one in ours):
        some = [one for one in ours if one.title == title]
        by_isolation = [
            side([one for one in some if one.isolation == each], lambda one: one.bytes_each)
            for each in ISOLATIONS
        ]
        what = f"bytes by sendfile, {title}, uncommitted"
        out.append(ratio_bar(what, SENT_BAR, "x committed", together(*by_isolation)))
    return out


def report(found: Sequence[Sent], plan: Mapping[str, Any]) -> Measurement:
    rows = []
    for name, title, isolation in dict.fromkeys(
        (one.broker, one.title, one.isolation) for one in found
    ):
        some = [
            one for one in found
            if (one.broker, one.title, one.isolation) == (name, title, isolation)
        ]  # fmt: skip
        columns = (
            [one.bytes_each / KIB for one in some],
            [one.calls_each for one in some],
        )
        fetches = number(sum(one.fetches for one in some))
        each = (interval(estimate(each)) for each in columns)
        rows.append([name, title, isolation, fetches, *each])
    head = ("broker", "fetch", "isolation", "fetches", "KB by sendfile", "calls")
    return Measurement.of(plan, head, rows, bars(found), found, lambda one: (
        (f"bytes by sendfile, {one.title}, {one.isolation}", one.bytes_each, "B"),
    ), [INVERSE])  # fmt: skip
