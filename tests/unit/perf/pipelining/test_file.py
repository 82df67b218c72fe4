"""A file of results may hold anything: one line says what is wrong, and a picture stays one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from perf import cli
from perf.pipelining import picture
from perf.pipelining.bars import java, killed, matrix, paced
from perf.pipelining.plan import ALL, MIDDLE_US, SYSTEMS, Plan, PlanError
from perf.pipelining.report import report
from perf.studies.kinds import plan_json
from tests.unit.perf.pipelining.fake import block, outcome

PLAN = Plan.quick(sections=("matrix", "paced", "java", "killed"), rounds=6)


def _good() -> dict[str, Any]:
    cells = {
        **{matrix(one, MIDDLE_US, ALL, 5): block(rate=10, brokers_cpu_us=1.0) for one in SYSTEMS},
        **{paced(one): block(timed=3000, rate=1) for one in SYSTEMS},
        **{java(one): block(p99_us=1.0) for one in SYSTEMS},
        **{killed(one, 5): block(stood_still_s=1.0) for one in SYSTEMS},
    }
    data = report(outcome(PLAN, cells), PLAN).json
    plain: dict[str, Any] = json.loads(json.dumps({**data, "plan": plan_json(PLAN)}))
    return plain


@pytest.mark.parametrize(
    "wrong",
    [
        {"systems": []},
        {"systems": [1]},
        {"systems": ['"/><script>']},
        {"systems": ["kafka", "kafka"]},
        {"sections": []},
        {"sections": ["nothing"]},
        {"sections": [["matrix"]]},
        {"round_trips_us": []},
        {"round_trips_us": ["500"]},
        {"round_trips_us": [500.0]},
        {"round_trips_us": [True]},
        {"round_trips_us": [0]},
        {"round_trips_us": list(range(1, 100))},
        {"in_flight": [-5]},
        {"in_flight": [None]},
        {"in_flight": [10**30]},
        {"slots": []},
        {"slots": [{}]},
        {"rounds": 0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"seconds": -1.0},
    ],
    ids=str,
)
def test_an_impossible_plan_is_one_line(
    wrong: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = _good()
    place = tmp_path / "study.json"
    place.write_text(json.dumps({**good, "plan": {**good["plan"], **wrong}}))
    picture_at = tmp_path / "picture.svg"
    for words in (["show", str(place)], ["show", str(place), "--write-picture", str(picture_at)]):
        assert cli.main(words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "is no study's JSON" in line and next(iter(wrong)) in line
    assert not picture_at.exists()


def test_a_plan_of_a_command_line_is_looked_at_as_well() -> None:
    with pytest.raises(PlanError, match="the plan's in_flight"):
        Plan(in_flight=())


@pytest.mark.parametrize(
    "numbers",
    [
        {"bytes": 1 << 62, "wall_s": 5e-324},
        {"bytes": 0, "requests": 0, "records": 0},
        {"wall_s": 1.7e308},
        {"figures": {"p99_us": -1e308, "stood_still_s": 1e308, "brokers_cpu_us": 1e-308}},
        {"figures": {}},
        {"histograms": {}},
        {"others_cpu": -1e308},
    ],
    ids=str,
)
@pytest.mark.parametrize("which", [1, 2, 3])
def test_numbers_that_no_machine_has_raise_nothing(
    numbers: dict[str, Any], which: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one system's blocks, in all, and in all rounds but the first."""
    data = _good()
    for key, rounds in data["blocks"].items():
        for number in rounds:
            if which == 2 or (which == 1 and "stock" not in key) or (which == 3 and number != "0"):
                rounds[number].update(numbers)
    place = tmp_path / "study.json"
    place.write_text(json.dumps(data))
    picture_at = tmp_path / "picture.svg"
    assert cli.main(["show", str(place)]) == 0
    assert cli.main(["show", str(place), "--markdown"]) == 0
    said = capsys.readouterr().out
    assert "nan" not in said and " inf" not in said
    status = cli.main(["show", str(place), "--write-picture", str(picture_at)])
    if status == 0:
        lengths = [
            float(each.get("width", 0))
            for each in ElementTree.parse(picture_at).getroot().iter()
            if each.tag.endswith("rect")
        ]
        assert all(0 <= length <= picture.WIDTH for length in lengths)


def test_words_of_a_file_are_text_in_a_picture_and_on_a_page(tmp_path: Path) -> None:
    data = _good()
    evil = '</text><script x="1">&\x00\ud800\n\n<!-- end -->' + "x" * 10_000
    for name in data["machine"]:
        data["machine"][name] = evil
    place, picture_at = tmp_path / "study.json", tmp_path / "picture.svg"
    place.write_text(json.dumps(data))
    assert cli.main(["show", str(place), "--write-picture", str(picture_at)]) == 0
    root = ElementTree.parse(picture_at).getroot()
    assert not [each for each in root.iter() if "script" in each.tag]
    found = outcome(PLAN, {matrix(one, MIDDLE_US, ALL, 5): block() for one in SYSTEMS})
    found.machine = data["machine"]
    page = report(found, PLAN).page
    assert "<!--" not in page and len(page.splitlines()[0]) < 1000
    page.encode()


def test_a_class_of_a_picture_ends_nowhere_but_at_its_end() -> None:
    evil = 'a" onload="b'
    svg = picture._svg("t\"'<", "s", [("n<", [(evil, 1.0)])], 1.0)
    root = ElementTree.fromstring(svg)
    assert {each.get("class") for each in root.iter() if each.tag.endswith("rect")} == {evil}
    assert not [each for each in root.iter() if each.get("onload")]
    assert root.get("aria-label") == "t\"'<"
