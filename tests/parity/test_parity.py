"""kbroker beside Apache Kafka 4.3.0: every case, field by field.

One kbroker for each setup; the cases of the chosen families are all held with it before the first
test looks at its own. A test is a family: ten thousand tests, one for each case, take a minute
of each run to be collected and reported. It fails where answers differ and differences.py has no
reason, and lists every case that does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.parity import vectors
from tests.parity.cases import PENDING, cases_of, families
from tests.parity.differences import (
    DIFFERENCES,
    Difference,
    Found,
    Pins,
    between,
    load_pins,
    reason,
    split,
)
from tests.parity.sides import AUTHORIZER, SHARE_AUTHORIZER, USERS, Held, Key, Side
from tests.parity.talk import host_of
from tests.support import requirements

# The first test waits for all cases to be held.
pytestmark = pytest.mark.timeout(600)

PINS = load_pins()
FAMILIES = [family for family in families() if family not in PENDING]
ALL = [(family, case) for family in FAMILIES for case in cases_of(family)]


@pytest.fixture(scope="module")
def held(request: pytest.FixtureRequest) -> Iterator[dict[Key, Held]]:
    """The outcome of each case of this run, which may be a selection of families."""
    items: list[Any] = request.session.items
    chosen = {
        item.callspec.params["family"]
        for item in items
        if getattr(item, "originalname", "") == test_the_answers_of_apache_kafka.__name__
    }
    with Side.kbroker() as side:
        yield side.hold((family, case) for family, case in ALL if family in chosen)


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, list[object]]]:
    return {family: vectors.load(family) for family in families()}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answers_of_apache_kafka(
    family: str, held: dict[Key, Held], recorded: dict[str, dict[str, list[object]]]
) -> None:
    wrong = [
        said
        for case in cases_of(family)
        if (said := complaint(family, case.label, held[family, case.label], recorded[family]))
    ]
    assert not wrong, f"{len(wrong)} of {len(cases_of(family))} cases:\n" + "\n".join(wrong)


def complaint(family: str, label: str, ours: Held, recorded: dict[str, list[object]]) -> str:
    """Why a case fails; empty: it does not."""
    if ours.failure is not None:
        return f"{family}: {label}\n{ours.failure}\nafter {ours.steps[-1:]}"
    if label not in recorded:
        return f"{family}: {label}\nrecord it: python -m tests.parity.record {family}"
    unexplained, _ = split(between(f"{family}: {label}", ours.steps, recorded[label]), PINS)
    return "\n".join(map(str, unexplained))


def test_every_explanation_and_every_answer_is_needed(
    held: dict[Key, Held], recorded: dict[str, dict[str, list[object]]]
) -> None:
    if len(held) < len(ALL):
        requirements.skip_on_this_machine("only some cases were chosen")
    used: list[Difference] = []
    answers = {(case, path) for case, places in PINS.items() for path in places}
    for (family, label), ours in held.items():
        theirs = recorded[family].get(label, [])
        found = between(f"{family}: {label}", ours.steps, theirs)
        for each, entry in split(found, PINS)[1]:
            used += [] if entry in used else [entry]
            answers.discard((each.case, each.path))
    assert [d for d in DIFFERENCES if d not in used] == []
    assert answers == set()


def test_an_answer_is_excused_only_as_it_is_pinned() -> None:
    case, path, ours = next((c, p, o) for c, places in PINS.items() for p, o in places.items())
    found = Found(case, path, ours, "something else")
    assert reason(found) is not None
    assert split([found], PINS)[0] == []
    others: tuple[Pins, ...] = ({}, {case: {}}, {case: {path: "another"}})
    for pins in others:
        assert split([found], pins)[0] == [found]
    assert split([Found(case, path, "another", "something else")], PINS)[0]


def test_every_pinned_answer_has_a_reason() -> None:
    pinned = [Found(c, p, ours, None) for c, places in PINS.items() for p, ours in places.items()]
    assert [each for each in pinned if reason(each) is None] == []


@pytest.mark.parametrize("family", families())
def test_no_vector_without_a_case(family: str) -> None:
    labels = {case.label for case in cases_of(family)}
    assert vectors.load(family).keys() <= labels


def test_cases_with_an_authorizer_have_hosts_of_their_own() -> None:
    """Their ACLs are of a host; of two cases with one host the later would see the other's ACLs."""
    cases: dict[str, str] = {}
    for family in families():
        for case in cases_of(family):
            if case.setup in (AUTHORIZER, SHARE_AUTHORIZER, USERS):
                title = f"{family}: {case.label}"
                other = cases.setdefault(host_of(title), title)
                assert other == title, f"{title} and {other}: change a word of one label"
