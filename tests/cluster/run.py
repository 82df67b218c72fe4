"""One run: a cluster under load, faults one after the other, and then everything is looked at.

After a fault every partition acknowledges new records, and (after most) every replica comes back in
sync. A failure of that in time is a violation, too, and the end of the faults; so is a broker that
ended by itself, and a partition that is silent for longer than the fault explains (silence.py). Its
silence is the longest time from the beginning of the fault on in which some partition acknowledged
nothing.
"""

from __future__ import annotations

import dataclasses
import random
import statistics
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.cluster import replicas
from tests.cluster.brokers import NODES, PLACES, TIMEOUT_S, Cluster, cluster, wait
from tests.cluster.checker import Violation, check
from tests.cluster.history import History
from tests.cluster.load import IDEMPOTENT_MAX, Load, contents
from tests.cluster.meeting import InMemory, OfJava
from tests.cluster.nemeses import NEMESES
from tests.cluster.nemeses.base import Nemesis
from tests.cluster.schedule import Fault
from tests.cluster.silence import Happened, StoodStill, measured, too_long

CHANGES_SHARE: Final = 0.15  # of the faults after which a member of the group is another one
QUIET_S: Final = (0.1, 1.0)
POLL_S: Final = 0.02
LOG_LINES_MAX: Final = 5
FAULTY_LINES: Final = ("Traceback (most recent call last)", "InvariantError")

NOTHING: Final = StoodStill(0.0, 0.0, 0.0, 0.0)

Say = Callable[[str], None]


@dataclasses.dataclass
class Outcome:
    seed: int
    faults: Counter[str] = dataclasses.field(default_factory=Counter)
    stood_still: dict[str, list[StoodStill]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )
    acknowledged: int = 0
    read: int = 0
    commits: int = 0
    looks: int = 0  # at the group's offsets
    seconds: float = 0.0
    hung: list[str] = dataclasses.field(default_factory=list)  # clients, in their own library
    violations: list[Violation] = dataclasses.field(default_factory=list)

    def summary(self) -> list[str]:
        """The figures, a line each."""
        lines = []
        for name, count in sorted(self.faults.items()):
            found = self.stood_still.get(name) or [NOTHING]
            lines.append(
                f"  {name:<22} {count:>4}   silent"
                f" {statistics.median(each.silent_s for each in found):6.2f} s in the middle,"
                f" {max(each.silent_s for each in found):6.2f} s at most,"
                f" {max(each.beyond_s for each in found):6.2f} s more than it lasted;"
                f" healthy {max(each.healthy_s for each in found):5.2f} s,"
                f" commits {max(each.commits_s for each in found):6.2f} s at most"
            )
        every = [each.silent_s for found in self.stood_still.values() for each in found] or [0.0]
        lines.append(
            f"seed {self.seed}: {self.faults.total()} faults in {self.seconds:.0f} s,"
            f" {self.acknowledged:,} records acknowledged, {self.read:,} read,"
            f" {self.commits:,} commits, {self.looks:,} looks at the group's offsets; silent"
            f" {statistics.median(every):.2f} s in the middle, {max(every):.2f} s at most;"
            f" {len(self.violations)} violations"
        )
        if self.hung:
            lines.append(f"hung in their own library, and left: {', '.join(self.hung)}")
        return [*lines, *(f"VIOLATION {each}" for each in self.violations)]


class Run:
    """See the head of this file."""

    def __init__(
        self,
        cluster: Cluster,
        outcome: Outcome,
        say: Say,
        *,
        timeout_s: float = TIMEOUT_S,
        in_flight: int = IDEMPOTENT_MAX,
    ) -> None:
        self.cluster = cluster
        self._in_flight = in_flight
        self.history = History()
        self.outcome = outcome
        self._say = say
        self._timeout_s = timeout_s
        self._dice = random.Random(outcome.seed + 1)

    def all(self, faults: Sequence[Fault], until_s: float = float("inf")) -> None:
        """`until_s`: by the monotonic clock; no fault begins later."""
        began = time.monotonic()
        self.cluster.create_topics()
        load = Load(self.cluster.bootstrap, self.history, self._in_flight)
        try:
            went_well = self._try(lambda: self._bring_about(faults, load, until_s))
            went_well &= self._try(lambda: self._look_at_records(load))
            if went_well:
                self._try(self._look_at_replicas)
        finally:
            load.give_up()
            self._look_at_logs()
            self.outcome.hung = load.hung
            self.outcome.acknowledged = self.history.acknowledged
            self.outcome.read = self.history.records_read
            self.outcome.commits = self.history.commits
            self.outcome.looks = sum(map(len, self.history.fetched.values()))
            self.outcome.seconds = time.monotonic() - began

    def _try(self, part: Callable[[], None]) -> bool:
        try:
            part()
        except Exception as error:
            self._say(traceback.format_exc())
            self._violate("stuck", [f"{type(error).__name__}: {error}"])
            return False
        return True

    def _bring_about(self, faults: Sequence[Fault], load: Load, until_s: float) -> None:
        self._wait_until_it_goes_on()
        for fault in faults:
            if time.monotonic() > until_s:
                self._say("the time is over")
                break
            self._one(fault, load)
        self.cluster.wait_in_sync(self._timeout_s)

    def _look_at_records(self, load: Load) -> None:
        self._violate("load", load.finish())
        self.outcome.violations += check(self.history, contents(self.cluster.bootstrap))

    def _one(self, fault: Fault, load: Load) -> None:
        dice = random.Random(fault.seed)
        time.sleep(dice.uniform(*QUIET_S))
        self.history.watch_silence()
        happened = self._happen(fault, "")
        self._wait_until_it_goes_on()
        silences_s, commits_s = self.history.silences_s(), self.history.commits_silent_s
        self._violate("silent", too_long(happened, silences_s, commits_s))
        in_sync = f"{self.cluster.wait_in_sync(self._timeout_s):.1f}" if fault.in_sync else "-"
        ended = [node for node in NODES if not self.cluster.brokers[node].alive]
        if ended:
            raise RuntimeError(f"brokers {ended} ended by themselves after {fault.nemesis}")
        found = measured(happened, silences_s, commits_s)
        self.outcome.stood_still[fault.nemesis].append(found)
        healthy = f" (healthy: {found.healthy_s:.2f} s)" if {*happened.hit} != {*PLACES} else ""
        self._say(
            f"{self.outcome.faults.total():>4} {happened.line}, lasted {found.lasted_s:.1f} s:"
            f" silent {found.silent_s:.2f} s{healthy}, commits {commits_s:.2f} s,"
            f" in sync {in_sync} s, {self.history.acknowledged:,} acknowledged"
        )
        if dice.random() < CHANGES_SHARE:
            load.change_member()

    def _wait_until_it_goes_on(self) -> None:
        """Every partition acknowledges what is sent from now on, and the group commits."""
        mark, commits = self.history.mark(), self.history.commits
        left = [*PLACES]
        until = time.monotonic() + self._timeout_s
        while left := [place for place in left if not self.history.gone_on(place, mark)]:
            if time.monotonic() > until:
                raise TimeoutError(f"nothing is acknowledged in {', '.join(map(str, left))}")
            time.sleep(POLL_S)
        left_s = until - time.monotonic()
        wait("the group commits", lambda: self.history.commits > commits, left_s)

    def _happen(self, fault: Fault, indent: str) -> Happened:
        """When it has ended it is counted."""
        nemesis: Nemesis = NEMESES[fault.nemesis](self.cluster, random.Random(fault.seed))
        began_s = time.monotonic()
        within: Happened | None = None
        try:
            line = f"{fault.nemesis} ({nemesis.begin()})"
            if fault.within is not None:
                within = self._happen(fault.within, indent + "  ")
                line += f" with {within.line}"
            time.sleep(fault.hold_s)
            ended = nemesis.end()
        except BaseException:
            self._say(f"{indent}in {fault}:")
            raise
        self.outcome.faults[fault.nemesis] += 1
        return Happened(
            line + f" held {fault.hold_s:.1f} s" + (f", {ended}" if ended else ""),
            nemesis.lasted_s or time.monotonic() - began_s,
            nemesis.hit if within is None else {*nemesis.hit, *within.hit},
        )

    def _look_at_replicas(self) -> None:
        """After the end of everything, with every broker stopped in order."""
        self.cluster.wait_in_sync(self._timeout_s)  # a replica may have lagged while the load ended
        seen = wait("where replicas are", lambda: self.cluster.seen_by(NODES[0]), self._timeout_s)
        placed = {place: seen[place].replicas for place in PLACES}
        brokers = self.cluster.brokers
        for node in NODES:
            status = brokers[node].stop(self._timeout_s)
            if status != 0:
                self._violate("stop", [f"broker {node} ended with exit status {status}"])
        data_dirs = {node: brokers[node].data_dir for node in NODES}
        self.outcome.violations += replicas.compare(data_dirs, placed)

    def _look_at_logs(self) -> None:
        for node, broker in self.cluster.brokers.items():
            lines = broker.log_text().splitlines()
            bad = [n for n, line in enumerate(lines) if any(word in line for word in FAULTY_LINES)]
            found = [" / ".join(lines[max(n - 1, 0) : n + 1]) for n in bad[:LOG_LINES_MAX]]
            self._violate(f"log of broker {node}", found)

    def _violate(self, rule: str, texts: Sequence[str]) -> None:
        self.outcome.violations += [Violation(rule, text) for text in texts]


def hold(
    faults: Sequence[Fault],
    *,
    seed: int,
    in_memory: bool,
    isolated: bool,
    say: Say,
    keep: Path | None = None,
    until_s: float = float("inf"),
    settings: Mapping[str, object] | None = None,
    in_flight: int = IDEMPOTENT_MAX,
) -> Outcome:
    """`keep`: where the brokers' logs go when something was violated."""
    outcome = Outcome(seed)
    with (
        closing(InMemory() if in_memory else OfJava()) as meeting,
        cluster(meeting, isolated=isolated, settings=settings) as made,
    ):
        say(f"three brokers at {made.bootstrap}, {meeting.name}")
        Run(made, outcome, say, in_flight=in_flight).all(faults, until_s)
        if outcome.violations and keep is not None:
            made.keep_logs(keep)
            say(f"the brokers' logs are in {keep}")
    return outcome
