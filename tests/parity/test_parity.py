"""kbroker beside Apache Kafka 4.3.0: every case, field by field.

One kbroker for each setup; the chosen cases are all held with it before the first test looks at its
own. A test fails where the answers differ and differences.py has no reason.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.parity import vectors
from tests.parity.cases import PENDING, cases_of, families
from tests.parity.differences import DIFFERENCES, Difference, between, split
from tests.parity.sides import Held, Key, Side
from tests.support import requirements

# The first test waits for all cases to be held.
pytestmark = pytest.mark.timeout(600)

ALL = [
    (family, case) for family in families() if family not in PENDING for case in cases_of(family)
]


@pytest.fixture(scope="module")
def held(request: pytest.FixtureRequest) -> Iterator[dict[Key, Held]]:
    """What came of the cases of this run, which may be a selection."""
    chosen = {
        item.callspec.params["key"]
        for item in request.session.items
        if getattr(item, "originalname", "") == "test_case" and "key" in item.callspec.params
    }
    with Side.kbroker() as side:
        yield side.hold((f, case) for f, case in ALL if (f, case.label) in chosen)


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, list[object]]]:
    return {family: vectors.load(family) for family in families()}


@pytest.mark.parametrize(
    "key", [(f, c.label) for f, c in ALL], ids=[f"{f}: {c.label}" for f, c in ALL]
)
def test_case(
    key: Key, held: dict[Key, Held], recorded: dict[str, dict[str, list[object]]]
) -> None:
    family, label = key
    ours = held[key]
    assert ours.failure is None, f"{ours.failure}\nafter {ours.steps[-1:]}"
    assert label in recorded[family], f"record it: python -m tests.parity.record {family}"
    found = between(f"{family}: {label}", ours.steps, recorded[family][label])
    unexplained, _ = split(list(found))
    assert not unexplained, "\n".join(map(str, unexplained))


def test_every_explanation_is_needed(
    held: dict[Key, Held], recorded: dict[str, dict[str, list[object]]]
) -> None:
    if len(held) < len(ALL):
        requirements.skip_on_this_machine("only some cases were chosen")
    used: list[Difference] = []
    for (family, label), ours in held.items():
        theirs = recorded[family].get(label, [])
        found = between(f"{family}: {label}", ours.steps, theirs)
        used += [entry for _, entry in split(list(found))[1] if entry not in used]
    assert [d for d in DIFFERENCES if d not in used] == []


@pytest.mark.parametrize("family", families())
def test_no_vector_without_a_case(family: str) -> None:
    labels = {case.label for case in cases_of(family)}
    assert vectors.load(family).keys() <= labels
