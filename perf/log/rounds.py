"""What the measurements of a log have in common: two brokers by turns, compared within a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from perf.bars import Bar
from perf.brokers import Broker, KafkaBroker, KbrokerBroker
from perf.stats import ratio
from perf.verdict import lacking

OURS, THEIRS = "kbroker", "kafka"
UNIT: Final = "x Kafka"


class Measured(Protocol):
    """One value, or several that were measured together."""

    @property
    def broker(self) -> str: ...

    @property
    def round(self) -> int: ...

    @property
    def quiet(self) -> bool: ...


One = TypeVar("One", bound=Measured)


# Apache Kafka's controller takes no new process of a killed broker while the session of the old one
# lasts, counted from the controller's own start: so it is over before the broker has read its logs.
BRIEF_SESSION: Final = ("broker.session.timeout.ms=1000", "broker.heartbeat.interval.ms=200")


def new_broker(
    kind: str, directory: Path, settings: tuple[str, ...] = (), *, killed: bool = False
) -> Broker:
    """One node of its kind, not started. `settings`: KEY=VALUE, the same names for both.
    `killed`: its directory was left by SIGKILL, and its start is not to wait for a session."""
    if kind == OURS:
        return KbrokerBroker(directory, overrides=settings)
    return KafkaBroker(directory, overrides=settings + (BRIEF_SESSION if killed else ()))


def order(brokers: Sequence[str], number: int) -> Sequence[str]:
    """Of a round, counted from 0: the other way round in every second one."""
    return brokers[:: -1 if number % 2 else 1]


def quiet_pairs(found: Iterable[One]) -> list[tuple[One, One]]:
    """kbroker's and Apache Kafka's of each round in which nothing else ran beside either."""
    by_round = {(one.broker, one.round): one for one in found if one.quiet}
    return [
        (one, by_round[THEIRS, number])
        for (broker, number), one in by_round.items()
        if broker == OURS and (THEIRS, number) in by_round
    ]


def ratio_bar(what: str, bar: float, found: Sequence[One], figure: Callable[[One], float]) -> Bar:
    """kbroker's figure by Apache Kafka's, round by round.

    Not measured where no round has both. A round in which a figure is not above 0 has no ratio: a
    difference that drowned in the noise.
    """
    both = {one.round for one in found if one.broker == OURS}
    if not both & {one.round for one in found if one.broker == THEIRS}:
        return Bar(what, bar, None, UNIT)
    pairs = [(figure(ours), figure(theirs)) for ours, theirs in quiet_pairs(found)]
    positive = [pair for pair in pairs if min(pair) > 0]
    value = ratio([ours for ours, _ in positive], [theirs for _, theirs in positive])
    loud = sum(not one.quiet for one in found)
    doubt = "" if value.decides else lacking(len(value.values), noisy=loud)
    return Bar(what, bar, value, UNIT, doubt=doubt)
