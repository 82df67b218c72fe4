"""Deleting topics: the time of a request where there are many topics, and until space is back.

    python -m perf.deletions                        # 500 a request, of 3,000 and of 500, 15 rounds
    python -m perf.deletions --rounds 3 --of 300,50 --topics 50 --json FILE

Two brokers, one with many topics of one partition and one with only those that a request deletes;
`--kafka` measures Apache Kafka instead. In each round each of them is sent one request that deletes
as many topics, and then these are created again; the order changes from round to round, and the
other broker is held still meanwhile. What became due at a broker while it was held still it does in
the second before its request. Measured: the time until the answer, and from there until the last
file of a deleted topic is closed and its directory removed. The times of each round give a ratio,
and all ratios an interval (`judge.py`).

The bars are those of issue 38: a request is answered within a second, the broker with many topics
takes at most 1.2 times as long, and the space is back within file.delete.delay.ms + 5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from perf.brokers import Broker, BrokerError, KafkaBroker, KbrokerBroker
from perf.client import Client, ClientError
from perf.judge import Bar, ratio_bar, side, together, value_bar
from perf.machine import machine_line, version_line
from perf.process import Watch
from perf.tables import bar_lines

ROUNDS: Final = 15
# file.delete.delay.ms: with the default of a minute every round would take that much longer.
DELAY_MS: Final = 2_000
BACK_WITHIN_MS: Final = DELAY_MS + 5_000
GIVE_UP_MS: Final = DELAY_MS + 60_000
ANSWER_MS_MAX: Final = 1_000
RATIO_MAX: Final = 1.2
TOPICS_A_REQUEST: Final = 500  # to create them
CREATED_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02
SETTLE_S: Final = 1.0
SETTINGS: Final = (f"log.segment.delete.delay.ms={DELAY_MS}", "auto.create.topics.enable=false")
_DELETED: Final = "-delete"  # how the directory of a partition ends that is about to be removed


@dataclass(frozen=True)
class Deletion:
    """One request, of a broker that had `of` topics."""

    of: int
    round: int
    answer_ms: float
    back_ms: float
    quiet: bool


class Side:
    """A broker with its topics."""

    def __init__(self, broker: Broker, of: int, topics: int) -> None:
        self.broker, self.of = broker, of
        self._deleted = [f"deleted-{number}" for number in range(topics)]
        self._kept = [f"kept-{number}" for number in range(of - topics)]

    def fill(self) -> None:
        self.broker.start()
        with self._client() as client:
            create(client, self._kept)
            create(client, self._deleted)

    def delete(self, number: int) -> Deletion:
        """Those of a request, and have them again."""
        watch = Watch([*self.broker.own_pids, os.getpid()])
        with self._client() as client:
            begin = time.perf_counter()
            client.delete_topics(self._deleted)
            answered = time.perf_counter()
            while not self._is_gone():
                if (time.perf_counter() - answered) * 1e3 > GIVE_UP_MS:
                    raise BrokerError(f"{self.broker.name}: files are there after {GIVE_UP_MS} ms")
                time.sleep(POLL_S)
            back = time.perf_counter()
            quiet = watch.guard().quiet
            create(client, self._deleted)
        return Deletion(self.of, number, (answered - begin) * 1e3, (back - answered) * 1e3, quiet)

    def _is_gone(self) -> bool:
        names = os.listdir(self.broker.directory / "data")
        there = any(name.endswith(_DELETED) or name.startswith("deleted-") for name in names)
        return not there and not held_files(self.broker.measured_pid)

    def _client(self) -> Client:
        return Client(self.broker.host, self.broker.port)


def held_files(pid: int) -> int:
    """Files that are removed and open, of which the space is not back."""
    place, held = f"/proc/{pid}/fd", 0
    for entry in os.listdir(place):
        try:
            path = os.readlink(f"{place}/{entry}")
        except FileNotFoundError:
            continue
        held += "deleted-" in path and path.endswith(" (deleted)")
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        return held + sum("deleted-" in line and " (deleted)" in line for line in maps)


def create(client: Client, names: Sequence[str]) -> None:
    """In requests, and wait until every partition is led."""
    for first in range(0, len(names), TOPICS_A_REQUEST):
        client.create_topics(names[first : first + TOPICS_A_REQUEST], 1)
    give_up = time.monotonic() + CREATED_WITHIN_S
    while names and (missing := [each for each in client.cluster(names).topics if each.missing]):
        if time.monotonic() > give_up:
            raise ClientError(f"topic {missing[0].name} has no leader", missing[0].missing)
        time.sleep(POLL_S)


def measure(sides: tuple[Side, Side], rounds: int, say: Callable[[str], None]) -> list[Deletion]:
    """The first request of each is warm-up."""
    found: list[Deletion] = []
    for each in sides:
        each.fill()
        each.broker.hold()
    for number in range(rounds + 1):
        for each in sides if number % 2 else sides[::-1]:
            each.broker.resume()
            time.sleep(SETTLE_S)
            one = each.delete(number)
            each.broker.hold()
            if number:
                found.append(one)
                say(
                    f"round {number}: of {one.of}: answered after {one.answer_ms:.0f} ms, space"
                    f" back {one.back_ms:.0f} ms later{'' if one.quiet else ' (not quiet)'}"
                )
    return found


def bars(found: Sequence[Deletion], many: int, few: int) -> list[Bar]:
    """The ratio of the answers' times, and what must hold."""
    of = {each: [one for one in found if one.of == each] for each in (many, few)}
    ratio = together(*(side(of[each], lambda one: one.answer_ms) for each in (many, few)))
    return [
        ratio_bar(f"answer, of {many} by of {few}", RATIO_MAX, "times", ratio),
        *(
            value_bar(name, bar, "ms", [(figure(one), one.quiet) for one in of[each]])
            for each in (many, few)
            for name, bar, figure in (
                (f"answer, of {each}", ANSWER_MS_MAX, _answer_ms),
                (f"space back, of {each}", BACK_WITHIN_MS, _back_ms),
            )
        ),
    ]


def _answer_ms(one: Deletion) -> float:
    return one.answer_ms


def _back_ms(one: Deletion) -> float:
    return one.back_ms


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perf.deletions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--topics", type=int, default=500, help="that one request deletes")
    parser.add_argument("--of", default="3000,500", help="how many there are: MANY,FEW")
    parser.add_argument("--kafka", action="store_true", help="Apache Kafka")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    try:
        options.many, options.few = map(int, options.of.split(","))
    except ValueError:
        parser.error("--of MANY,FEW: two numbers")
    if not 1 <= options.topics <= options.few <= options.many or options.rounds < 1:
        parser.error("as many topics as a request deletes have to be there, and a round")
    return options


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    kind: Callable[..., Broker] = KafkaBroker if options.kafka else KbrokerBroker
    with tempfile.TemporaryDirectory(prefix="kbroker-deletions-") as place, ExitStack() as stack:
        sides = tuple(
            Side(kind(Path(place) / str(index), overrides=SETTINGS), of, options.topics)
            for index, of in enumerate((options.many, options.few))
        )
        for each in sides:
            stack.callback(each.broker.stop)
        try:
            found = measure((sides[0], sides[1]), options.rounds, _say)
        except (BrokerError, ClientError, OSError) as error:
            print(f"deletions: {error}", file=sys.stderr)
            return 1
    every = bars(found, options.many, options.few)
    print(f"{machine_line()}; kbroker {version_line()}; {options.topics} topics a request")
    print("\n".join(bar_lines(every)))
    for of in (options.many, options.few):
        of_these = [one for one in found if one.of == of]
        print(
            f"all rounds, of {of}: answered after"
            f" {statistics.median(one.answer_ms for one in of_these):.0f} ms, space back"
            f" {statistics.median(one.back_ms for one in of_these):.0f} ms later (medians)"
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return 0 if all(bar.fine for bar in every) else 2


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
