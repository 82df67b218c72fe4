"""The vectors are answers of Apache Kafka: each has a date, and a sample is asked again."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from datetime import date

import pytest

from lab.jars import KAFKA_VERSION
from tests.parity import vectors
from tests.parity.cases import cases_of, families
from tests.parity.differences import Found, between
from tests.parity.sample import LEFT_OUT, OF_EACH, drawn, seed
from tests.parity.sides import Held, Key, Side


@pytest.mark.parametrize("family", families())
def test_every_vector_says_where_it_comes_from(family: str) -> None:
    recording = vectors.recording_of(family)
    assert recording.kafka == KAFKA_VERSION
    assert date(2026, 1, 1) < date.fromisoformat(recording.date)
    assert re.fullmatch(r"[0-9a-f]{7,40}", recording.commit)


def test_a_sample_has_every_family_and_comes_out_the_same_again() -> None:
    chosen = [(family, case.label) for family, case in drawn("a")]
    assert chosen == [(family, case.label) for family, case in drawn("a")]
    assert chosen != [(family, case.label) for family, case in drawn("b")]
    every = [family for family in families() if family not in LEFT_OUT]
    assert [family for family, _ in chosen[::OF_EACH]] == every
    labels = {family: {case.label for case in cases_of(family)} for family in families()}
    assert all(label in labels[family] for family, label in chosen)


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_apache_kafka_still_answers_as_recorded() -> None:
    chosen = list(drawn(seed()))
    with Side.kafka() as side:
        held = side.hold(chosen)
    # On a busy machine a JVM may be late where a case says "nothing comes": those once more, with a
    # broker that does not have their topics yet.
    again = [each for each in chosen if _other(held, (each[0], each[1].label))]
    if again:
        warnings.warn(f"asked twice: {[case.label for _, case in again]}", stacklevel=1)
    with Side.kafka() as side:
        held |= side.hold((family, replace(case, alone=True)) for family, case in again)
    other = [found for key in held for found in _other(held, key)]
    assert not other, f"KBROKER_SEED={seed()}\n" + "\n".join(map(str, other))


def _other(held: Mapping[Key, Held], key: Key) -> list[Found]:
    """Where the answers of now differ from the recorded ones."""
    (family, label), now = key, held[key]
    if now.failure is not None:
        return [Found(f"{family}: {label}", "", now.failure, "answers")]
    return list(between(f"{family}: {label}", now.steps, vectors.load(family)[label]))
