"""Random quotas and what clients use, charged by Apache Kafka's ClientQuotaManager and by ours.

    python -m tests.model.quota_delays --rounds 2000 --seed 1

Names come from a few, so that levels meet; steps in time are parts of a sample, whole ones, and
more than a window. Each charge is compared: which quota applied, who shared it, and for how long
its client has to wait, to a millisecond.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from typing import Final

from kbroker.quota._client_quotas import ClientQuotas
from tests.support import kafka_delays

CHARGES_A_ROUND: Final = 60
_EVERY: Final = ""
_USERS: Final = ("anna", "bert")
_CLIENTS: Final = ("c", "d", "")
_BEGAN_MS: Final = 1_700_000_000_000
# Both round a floating number; sums are of the same terms in another order.
_ROUNDING_MS: Final = 1


class Round:
    """Quotas, and then charges in the order of their times."""

    def __init__(self, dice: random.Random) -> None:
        self.samples, self.seconds = dice.choice(((11, 1), (11, 1), (3, 2), (1, 1), (20, 1)))
        entities = [
            (user, client)
            for user in (None, _EVERY, *_USERS)
            for client in (None, _EVERY, "c", "d")
            if (user, client) != (None, None)
        ]
        chosen = dice.sample(entities, dice.choice((0, 1, 2, 4, len(entities))))
        self.limits = {each: float(dice.choice((1, 10, 1_000, 12_345))) for each in chosen}
        self.charges: list[tuple[str, str, int, int]] = []
        now_ms, sample_ms = _BEGAN_MS, self.seconds * 1_000
        for _ in range(CHARGES_A_ROUND):
            now_ms += dice.choice(
                (0, 1, 77, sample_ms // 2, sample_ms, 3 * sample_ms, 15 * sample_ms)
            )
            size = dice.choice((1, 100, 10_000, 200_000))
            self.charges.append((dice.choice(_USERS), dice.choice(_CLIENTS), size, now_ms))

    def commands(self) -> Iterator[str]:
        yield f"N {self.samples} {self.seconds}"
        for (user, client), bound in self.limits.items():
            yield f"Q {_word(user)} {_word(client)} {bound}"
        for user, client, size, now_ms in self.charges:
            yield f"C {user} {client or '-'} {size} {now_ms}"

    def our_answers(self) -> Iterator[int]:
        quotas = ClientQuotas(samples=self.samples, sample_ms=self.seconds * 1_000)
        quotas.load(
            (user, client, [bound, None, None, None])
            for (user, client), bound in self.limits.items()
        )
        for user, client, size, now_ms in self.charges:
            yield quotas.charge(user, client, kind="produce", size=size, now_ms=now_ms)


class Tokens:
    """A bucket of tokens, and what is taken of it."""

    def __init__(self, dice: random.Random) -> None:
        self.rate = float(dice.choice((1, 2, 50)))
        self.samples, self.seconds = dice.choice(((11, 1), (2, 5)))
        now_ms = _BEGAN_MS
        self.takes: list[tuple[int, bool, int]] = []
        for _ in range(CHARGES_A_ROUND):
            now_ms += dice.choice((0, 1, 499, 1_000, 60_000))
            count = dice.choice((1, 5, int(self.rate * 11)))
            self.takes.append((count, dice.random() < 0.5, now_ms))

    def commands(self) -> Iterator[str]:
        yield f"M {self.rate} {self.samples} {self.seconds}"
        for count, strict, now_ms in self.takes:
            yield f"P {count} {'strict' if strict else 'lenient'} {now_ms}"

    def our_answers(self) -> Iterator[tuple[bool, int]]:
        quotas = ClientQuotas(
            mutation_samples=self.samples, mutation_sample_ms=self.seconds * 1_000
        )
        quotas.load([("anna", None, [None, None, None, self.rate])])
        for count, strict, now_ms in self.takes:
            yield quotas.mutate("anna", "c", count, strict, now_ms)


def _word(name: str | None) -> str:
    return "-" if name is None else name or "*"


def differences(seed: int, rounds: int) -> Iterator[str]:
    dice = random.Random(seed)
    made = [Round(dice) for _ in range(rounds)]
    buckets = [Tokens(dice) for _ in range(rounds)]
    theirs = iter(
        kafka_delays.answers(
            line
            for commands in (*(e.commands() for e in made), *(e.commands() for e in buckets))
            for line in commands
        )
    )
    for number, each in enumerate(made):
        for charge, ours in zip(each.charges, each.our_answers(), strict=True):
            expected = int(next(theirs))
            if abs(ours - expected) > _ROUNDING_MS:
                found = f"{expected}, here {ours}; {each.limits}"
                yield f"seed {seed}, round {number}, {charge}: {found}"
    for number, bucket in enumerate(buckets):
        for take, (done, delay_ms) in zip(bucket.takes, bucket.our_answers(), strict=True):
            word, expected_ms = next(theirs).split()
            if done != (word == "done") or abs(delay_ms - int(expected_ms)) > _ROUNDING_MS:
                found = f"{word} {expected_ms}, here {done} {delay_ms}"
                yield f"seed {seed}, tokens {number}, {take}: {found}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found = list(differences(arguments.seed, arguments.rounds))
    print("\n".join(found[:20]))
    print(f"{2 * arguments.rounds * CHARGES_A_ROUND} charges, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
