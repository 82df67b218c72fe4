"""Random groups, assigned by Apache Kafka's assignors and by ours.

    python -m tests.model.assignments --rounds 500 --seed 1
    python -m tests.model.assignments --largest     1,000 members and 10,000 partitions, timed

A group's members come and go, topics grow, and what was assigned is what the next round has to
keep. `range` has to give the same. Of `uniform`, where a hash table's order decides much, the
loads are compared: ours may not be less equal (by the sum of their squares), and it may not move
more partitions, over all histories, than that makes it more equal.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from kbroker.coordinator.group.assignors import RANGE, UNIFORM, Assignment, Subscriber, assign

STEPS: Final = 6


def topic_id(number: int) -> UUID:
    return UUID(int=number + 1)


class Group:
    """A group whose members and topics change."""

    def __init__(self, dice: random.Random, *, alike: bool) -> None:
        self._dice = dice
        self._alike = alike
        self.sizes = {topic_id(n): dice.randrange(1, 12) for n in range(dice.randrange(1, 8))}
        self._all = frozenset(self.sizes)
        self._made = 0
        self.members: list[Subscriber] = []
        for _ in range(dice.randrange(1, 9)):
            self.join()

    def join(self) -> None:
        self._made += 1
        number = self._dice.randrange(10**6)
        instance = f"i{number}" if self._dice.random() < 0.2 else None
        topics = self._all
        if not self._alike:
            count = self._dice.randrange(0, len(self.sizes) + 1)
            topics = frozenset(self._dice.sample(sorted(self.sizes), count))
        self.members.append(Subscriber(f"m{number}-{self._made}", instance, topics, {}))

    def change(self) -> None:
        for _ in range(self._dice.randrange(1, 4)):
            kind = self._dice.random()
            if kind < 0.4:
                self.join()
            elif kind < 0.8 and len(self.members) > 1:
                self.members.pop(self._dice.randrange(len(self.members)))
            else:
                self.sizes[self._dice.choice(sorted(self.sizes))] += self._dice.randrange(1, 4)

    def keep(self, assigned: Sequence[Assignment]) -> None:
        self.members = [
            member._replace(target=has) for member, has in zip(self.members, assigned, strict=True)
        ]


def groups(seed: int, rounds: int) -> Iterator[Group]:
    dice = random.Random(seed)
    for number in range(rounds):
        yield Group(random.Random(dice.random()), alike=number % 2 == 0)


def loads(assigned: Sequence[Assignment]) -> list[int]:
    return [sum(map(len, each.values())) for each in assigned]


def moved(members: Sequence[Subscriber], assigned: Sequence[Assignment]) -> int:
    """Partitions that a member had and has no more."""
    return sum(
        len(set(had) - set(has.get(topic, ())))
        for member, has in zip(members, assigned, strict=True)
        for topic, had in member.target.items()
    )


# --- in the words of GroupRules.java --------------------------------------------------------------


def command(assignor: str, members: Sequence[Subscriber], sizes: Mapping[UUID, int]) -> str:
    words = [f"{topic.int - 1}={size}" for topic, size in sizes.items()]
    return " ".join(["A", assignor, ",".join(words), *map(_member, members)])


def _member(member: Subscriber) -> str:
    topics = ",".join(str(topic.int - 1) for topic in sorted(member.topics))
    has = ";".join(
        f"{topic.int - 1}:{','.join(map(str, numbers))}"
        for topic, numbers in member.target.items()
        if numbers
    )
    return f"{member.member_id}/{member.instance_id or ''}/{topics}/{has}"


def read(answer: str, members: Sequence[Subscriber]) -> tuple[int, list[Assignment]]:
    """Microseconds, and what each member is to have."""
    micros, *words = answer.split(" ")
    by_id: dict[str, Assignment] = {}
    for word in words:
        member_id, _, has = word.partition("/")
        by_id[member_id] = {
            topic_id(int(topic)): [int(number) for number in numbers.split(",")]
            for topic, _, numbers in (each.partition(":") for each in has.split(";") if each)
        }
    return int(micros), [by_id.get(member.member_id, {}) for member in members]


def compare(seed: int, rounds: int) -> tuple[list[str], dict[str, int]]:
    """Both are asked about the same groups, which go on with our targets."""
    from tests.support import kafka_group_rules  # where there is Java

    found: list[str] = []
    sums = {"our squares": 0, "their squares": 0, "our moves": 0, "their moves": 0}
    tried = list(groups(seed, rounds))
    for step in range(STEPS):
        asked = [
            command(assignor, group.members, group.sizes)
            for group in tried
            for assignor in (UNIFORM, RANGE)
        ]
        answers = iter(kafka_group_rules.answers(asked))
        for number, group in enumerate(tried):
            where = f"seed {seed}, group {number}, step {step}"
            _, uniform = read(next(answers), group.members)
            _, ranges = read(next(answers), group.members)
            if assign(RANGE, group.members, group.sizes) != ranges:
                found.append(f"{where}: range {ranges}")
            made = assign(UNIFORM, group.members, group.sizes)
            squares, expected = (sum(n * n for n in loads(each)) for each in (made, uniform))
            if squares > expected:
                found.append(f"{where}: {squares} > {expected}")
            sums["our squares"] += squares
            sums["their squares"] += expected
            sums["our moves"] += moved(group.members, made)
            sums["their moves"] += moved(group.members, uniform)
            group.keep(made)
            group.change()
    # A move that makes two members more alike lowers the sum by two at least.
    more_alike = sums["their squares"] - sums["our squares"]
    if sums["our moves"] > sums["their moves"] + more_alike // 2:
        found.append(f"seed {seed}: more partitions move: {sums}")
    return found, sums


def largest(*, alike: bool, assignor: str = UNIFORM) -> tuple[list[Subscriber], dict[UUID, int]]:
    """1,000 members of 10,000 partitions in 100 topics; ten members are new."""
    dice = random.Random(1)
    sizes = {topic_id(number): 100 for number in range(100)}
    every = frozenset(sizes)
    members = [
        Subscriber(
            f"m{number}",
            None,
            every if alike else frozenset(dice.sample(sorted(sizes), 50)),
            {},
        )
        for number in range(1_000)
    ]
    before = assign(assignor, members[:-10], sizes)
    had = [m._replace(target=has) for m, has in zip(members, before, strict=False)]
    return had + members[-10:], sizes


def time_largest() -> None:
    from tests.support import kafka_group_rules

    for assignor in (UNIFORM, RANGE):
        for alike in (True, False):
            members, sizes = largest(alike=alike, assignor=assignor)
            times = []
            for _ in range(7):
                began = time.perf_counter()
                assign(assignor, members, sizes)
                times.append(int((time.perf_counter() - began) * 1e6))
            asked = [command(assignor, members, sizes)] * 30
            theirs = [read(each, members)[0] for each in kafka_group_rules.answers(asked)]
            kind = "alike" if alike else "each its own"
            print(f"{assignor}, {kind}: {min(times)} us, Apache Kafka {min(theirs)} us")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--largest", action="store_true")
    chosen = parser.parse_args()
    if chosen.largest:
        time_largest()
        return 0
    found, sums = compare(chosen.seed, chosen.rounds)
    print("\n".join(found[:20]))
    print(sums)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
