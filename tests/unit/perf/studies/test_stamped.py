"""Stamped records: histograms as perf.histogram makes them, and every record that is not right."""

from __future__ import annotations

import random

import numpy as np
import pytest

from perf.histogram import Histogram
from perf.studies.stamped import HEAD, Arrivals, StampError, histogram, value


def test_histograms_are_those_of_single_values() -> None:
    rng = random.Random(5)
    values = [0, 1, 127, 128, 129, 255, 256, (1 << 40) - 1, 1 << 40, (1 << 52) + 1]
    values += [rng.getrandbits(rng.randrange(1, 50)) for _ in range(3000)]
    ours, theirs = histogram(np.array(values, dtype=np.int64)), Histogram.of(values)
    assert ours.to_json() == theirs.to_json()
    assert histogram(np.empty(0, dtype=np.int64)).total == 0
    assert histogram(np.array([-5], dtype=np.int64)).to_json() == Histogram.of([0]).to_json()


def test_times_of_the_window() -> None:
    arrivals = Arrivals()
    for number in range(10):
        sent = 1000 + number * 100
        arrivals.add(value(number, sent - 30, sent, b"filling"), sent + 50)
    from_send, from_due, arrived = arrivals.histograms(1300, 1600)
    assert from_send.total == 3 and from_send.min == from_send.max == 50
    assert from_due.total == 3 and from_due.max == 80
    assert arrived == 3  # those that came at 1350, 1450 and 1550
    assert len(arrivals) == 10
    assert Arrivals().histograms(0, 1)[0].total == 0


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (value(0, 5, 5, b""), "record 0 came where 1 was due"),  # twice
        (value(2, 5, 5, b""), "record 2 came where 1 was due"),  # one was lost
        (b"short", "a record of 5 bytes where number 1 was due"),
        (b"", "a record of 0 bytes"),
        (HEAD.pack(1, 1 << 63, 5), "of the future"),
        (HEAD.pack(1, 5, (1 << 64) - 1), "of the future"),
    ],
)
def test_records_that_are_not_the_next_one(second: bytes, said: str) -> None:
    arrivals = Arrivals()
    arrivals.add(value(0, 1, 1, b"x"), 10)
    with pytest.raises(StampError, match=said):
        arrivals.add(second, 20)
