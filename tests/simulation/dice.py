"""The draws that a history makes most: as `random.Random` makes them, without its checks."""

from __future__ import annotations

import random


def below(dice: random.Random, end: int) -> int:
    """As `dice.randrange(end)`."""
    bits = end.bit_length()
    drawn = dice.getrandbits(bits)
    while drawn >= end:
        drawn = dice.getrandbits(bits)
    return drawn


def between(dice: random.Random, least: float, most: float) -> float:
    """As `dice.uniform(least, most)`."""
    return least + (most - least) * dice.random()
