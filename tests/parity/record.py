"""Record Apache Kafka's answers: `python -m tests.parity.record [FAMILY...]`, all by default.

Starts an Apache Kafka 4.3.0 of its own for every setup, holds the cases, writes the vectors and
prints the changes. With `--twice` each family is recorded a second time, with a new broker, and an
answer that differs is reported: such a case cannot be a vector.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable

from tests.parity import vectors
from tests.parity.cases import cases_of, families
from tests.parity.differences import between
from tests.parity.sides import Held, Key, Side


def hold_with_kafka(names: Iterable[str]) -> dict[Key, Held]:
    with Side.kafka() as side:
        return side.hold((family, case) for family in names for case in cases_of(family))


def record(names: list[str], twice: bool = False) -> int:
    """Returns how many cases failed."""
    started = time.monotonic()
    recording = vectors.Recording.of_now()
    held = hold_with_kafka(names)
    failed = {key: each.failure for key, each in held.items() if each.failure is not None}
    for (family, label), failure in failed.items():
        print(f"failed: {family}: {label}\n{failure}")
    for family in names:
        steps = {
            case.label: held[family, case.label].steps
            for case in cases_of(family)
            if (family, case.label) not in failed
        }
        _print_changes(family, steps)
        vectors.save(family, steps, recording)
        size = vectors.path_of(family).stat().st_size
        print(f"{family}: {len(steps)} cases, {size / 1024:.0f} KB")
    print(f"recorded in {time.monotonic() - started:.1f} s")
    return len(failed) + (_print_unsteady(names, held) if twice else 0)


def _print_changes(family: str, steps: dict[str, list[object]]) -> None:
    before = vectors.load(family)
    for label in before.keys() & steps.keys():
        for found in between(f"{family}: {label}", steps[label], before[label]):
            print(f"changed: {found.case} {found.path}: {found.theirs} -> {found.ours}")


def _print_unsteady(names: list[str], first: dict[Key, Held]) -> int:
    unsteady = 0
    for (family, label), held in hold_with_kafka(names).items():
        found = list(between(f"{family}: {label}", held.steps, first[family, label].steps))
        unsteady += bool(found)
        for each in found:
            print(f"not the same twice: {each.case} {each.path}: {each.theirs} and {each.ours}")
    return unsteady


def main() -> int:
    parser = argparse.ArgumentParser(description="Record Apache Kafka's answers.")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(families()))
    parser.add_argument("--twice", action="store_true", help="and check that they are steady")
    arguments = parser.parse_args()
    return 1 if record(arguments.families or list(families()), arguments.twice) else 0


if __name__ == "__main__":
    sys.exit(main())
