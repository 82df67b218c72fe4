"""A study's JSON read back: it says the same again, on the page and everywhere else."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbroker.generated_part import END
from perf import cli
from perf.histogram import Histogram
from perf.results_table import TOPIC
from perf.studies import kinds
from perf.studies.kinds import KINDS, Kind, plan_json, read
from perf.studies.measured import REQUEST
from perf.studies.study import Outcome, StudyError, slots
from tests.support.source_tree import ROOT
from tests.unit.perf.studies.fake import measured

MACHINE = {
    "cpus": 2, "model": "made up", "kernel": "6", "python": "3.11", "commit": "c", "when": "2026",
}  # fmt: skip
PAGES = {
    "latency-study": "studies.md",
    "tune": "tuning.md",
    "pipelining": "pipelining.md",
}


def _outcome(kind: Kind, plan: Any) -> Outcome:
    points = kind.points(plan)
    outcome = Outcome(kind.name, tuple(points), plan.rounds, MACHINE, faults=["one: void"])
    for number, slot in enumerate(slots(points, plan.rounds)):
        found = measured(100 + number % 7)
        found = replace(
            found, histograms={**found.histograms, REQUEST: Histogram.of([5_000 + number] * 3)}
        )
        rounds = outcome.blocks.setdefault(slot.point.key, {})
        if not slot.again:
            rounds[slot.round] = found
        else:
            pairs = outcome.null.setdefault(slot.point.key, {})
            pairs[slot.round] = (rounds[slot.round], found)
    return outcome


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def file(kind: Kind, tmp_path: Path) -> Path:
    """What --json writes."""
    plan = kind.plan.quick(directory=tmp_path, rounds=6)
    report = kind.report(_outcome(kind, plan), plan)
    place = tmp_path / "study.json"
    place.write_text(json.dumps({**report.json, "plan": plan_json(plan)}))
    return place


def test_it_says_the_same_again(kind: Kind, file: Path) -> None:
    again, outcome, plan = read(file)
    assert again is kind and plan == kind.plan.quick(rounds=6)
    first, second = kind.report(_outcome(kind, plan), plan), kind.report(outcome, plan)
    assert (second.page, second.text) == (first.page, first.text)
    assert second.conclusions == first.conclusions
    assert outcome.to_json()["blocks"] == _outcome(kind, plan).to_json()["blocks"]


def test_its_page_has_a_place_for_it(
    kind: Kind, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    shutil.copy(ROOT / "docs" / PAGES[kind.name], page)
    before, _, after = page.read_text().partition(kind.marker())
    assert cli.main(["show", str(file), "--write-page", str(page)]) == 0
    assert cli.main(["show", str(file), "--markdown"]) == 0
    drawn = capsys.readouterr().out
    text = page.read_text()
    assert drawn.strip() in text and "nan" not in drawn
    assert text.startswith(before) and text.endswith(after.partition(END)[2])
    assert text.count("*Measured*") == before.count("*Measured*") + 1
    page.write_text("nothing to replace")
    with pytest.raises(StudyError, match="lacks the markers"):
        kinds.write_page(page, kind, kind.report(*read(file)[1:]))


def test_effects_are_of_tune_alone_and_whole(
    kind: Kind, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects = tmp_path / "effects.json"
    monkeypatch.setattr("kbroker.config.effects.default_path", lambda: str(effects))
    status = cli.main(["show", str(file), "--write-effects"])
    assert (status, effects.exists()) == ((0, True) if kind.name == "tune" else (2, False))


def test_a_file_that_is_no_study(
    kind: Kind, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = json.loads(file.read_text())
    key = next(iter(good["blocks"]))
    plan = good["plan"]
    wrong: Any
    for wrong in (
        [],
        {**good, "study": "compare"},
        {name: good[name] for name in good if name != "plan"},
        {**good, "plan": {**plan, "rounds": 10**9}},
        {**good, "plan": {**plan, "rounds": "3"}},
        {**good, "plan": {**plan, "more": 1}},
        {**good, "machine": {}},
        {**good, "blocks": []},
        {**good, "blocks": {key: {"one": good["blocks"][key]["0"]}}},
        {**good, "blocks": {key: {"0": {**good["blocks"][key]["0"], "wall_s": -1}}}},
        {**good, "null": {good["points"][0]["key"]: {"0": [1]}}},
    ):
        file.write_text(json.dumps(wrong))
        assert cli.main(["show", str(file)]) == 1, wrong
        (line,) = capsys.readouterr().err.splitlines()
        assert "is no study's JSON" in line
    file.write_text("[" * 100_000)
    assert cli.main(["show", str(file)]) == 1


def test_an_unknown_broker_is_no_way_out(
    kind: Kind, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing from a file that is not taken keeps the records, and says so by its status."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("perf.publishing.PUBLISH_WAIT_S", 0.1)
    words = ["show", str(file), "--results-bootstrap", "127.0.0.1:1"]
    assert cli.main(words) == 1
    (kept,) = tmp_path.glob("kbroker-results-*.json")
    data = json.loads(kept.read_text())
    assert data["topic"] == TOPIC and {one["study"] for one in data["records"]} == {kind.name}
