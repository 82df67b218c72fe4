"""Users' scenarios of transactions under kills, by real clients.

    python -m tests.exactly_once                               all of them: make exactly-once
    python -m tests.exactly_once copies --libraries java,aiokafka --rounds 5 --seed 7
    KBROKER_TEST_REFERENCE=kafka python -m tests.exactly_once streams    against Apache Kafka

With Apache Kafka `rolling` has three kbrokers, too.

    copies      consume, transform, produce, by each library; kills of both parties at each step
    streams     Kafka Streams with exactly_once_v2: one instance, three, one
    tasks       the same with group.protocol=streams
    connect     Kafka Connect with exactly.once.source.support
    copier      Apache Kafka's TransactionalMessageCopier: one for each partition, then as a group
    resumed     Flink's way: a process ends what another one has left open
    dead        producers that are killed between send and commit, for good
    rolling     three brokers, restarted one after the other under copiers of every library

Each says a line for each kill, then what it has found; 1 is the exit status where something that
was committed is not read once and in order, an aborted record is read, or a transaction stays open.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.exactly_once.copiers import COMMANDS
from tests.exactly_once.scenarios import (
    connect,
    copies,
    dead,
    message_copier,
    resumed,
    rolling,
    streams,
)

CHECKPOINTS: Final = 60  # of `resumed`, in a round
Run = Callable[[], list[str]]


def chosen(options: argparse.Namespace, dice: random.Random) -> dict[str, Run]:
    rounds: int = options.rounds
    libraries: Sequence[str] = options.libraries
    every: Mapping[str, Run] = {
        **{
            f"copies {library}": lambda library=library: copies.run(library, dice, say, rounds)
            for library in libraries
        },
        "streams": lambda: streams.run(dice, say, rounds),
        "tasks": lambda: streams.run(dice, say, rounds, streams.STREAMS),
        "connect": lambda: connect.run(dice, say, rounds),
        "copier": lambda: message_copier.run(dice, say, rounds),
        "resumed": lambda: resumed.run(dice, say, CHECKPOINTS * rounds),
        "dead": lambda: dead.run(say),
        "rolling": lambda: rolling.run(dice, say, libraries, rounds),
    }
    wanted = {*options.scenarios} or {name.partition(" ")[0] for name in every}
    return {name: run for name, run in every.items() if name.partition(" ")[0] in wanted}


def main() -> int:
    names = ("copies", "streams", "tasks", "connect", "copier", "resumed", "dead", "rolling")
    parser = argparse.ArgumentParser(
        prog="python -m tests.exactly_once", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("scenarios", nargs="*", choices=[[], *names], metavar="SCENARIO")
    parser.add_argument("--libraries", type=lambda text: text.split(","), default=[*COMMANDS])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if unknown := {*options.libraries} - {*COMMANDS}:
        parser.error(f"no such library: {', '.join(sorted(unknown))}; there are {[*COMMANDS]}")
    failed = []
    for name, run in chosen(options, random.Random(options.seed)).items():
        began_s = time.monotonic()
        try:
            violations = run()
        except Exception as error:
            traceback.print_exc()
            violations = [f"{type(error).__name__}: {error}"]
        say(f"{name}: {time.monotonic() - began_s:.0f} s, {len(violations)} violations")
        for line in violations:
            say(f"VIOLATION {name}: {line}")
        failed += [name] if violations else []
    return 1 if failed else 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
