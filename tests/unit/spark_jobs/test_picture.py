"""A section as one SVG: the same bytes each time, nothing of a record that could be markup."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spark_jobs import picture
from spark_jobs.report_model import Plot, Section, Series
from tests.unit.spark_jobs.sample import HOSTILE, sample

SVG = "{http://www.w3.org/2000/svg}"


def _section(name: str = "kbroker") -> Section:
    bars = Plot(
        "Figure 1", "bars", "", "MB/s", (Series(name, ("a", "b"), (1.0, 2.0)),
                                         Series("other", ("a", "b"), (3.0, 4.0))),
    )  # fmt: skip
    return Section("some", "Some title", ("What it says. " * 30,), (), (bars, bars, bars))


def test_a_picture_has_the_words_and_every_plot() -> None:
    svg = picture.picture(_section())
    root = ElementTree.fromstring(svg)
    assert len([one for one in root if one.tag == f"{SVG}svg"]) == 3
    said = [one.text for one in root if one.tag == f"{SVG}text"]
    assert said[0] == "Some title" and said.count("Figure 1") == 3 and said.count("kbroker") == 3
    ids = [one.get("id") for one in root.iter() if one.get("id")]
    assert len(ids) == len(set(ids))
    assert svg == picture.picture(_section())


def test_the_text_of_a_record_is_no_markup() -> None:
    section = replace(_section(HOSTILE), title=HOSTILE, words=(HOSTILE,))
    root = ElementTree.fromstring(picture.picture(section))
    assert not [one for one in root.iter() if one.tag.endswith("script")]


def test_the_command_writes_a_section_or_says_which_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, out = tmp_path / "report.json", tmp_path / "one.svg"
    report.write_text(replace(sample(), sections=(_section(),)).to_json(), encoding="utf-8")
    assert picture.main([str(report), "some", "--out", str(out)]) == 0
    assert picture.main([str(report), "some"]) == 0
    assert capsys.readouterr().out == out.read_text(encoding="utf-8") != ""
    assert picture.main([str(report), "none"]) == 1
    assert picture.main([str(tmp_path / "away.json"), "some"]) == 1
    empty = replace(_section(), plots=())
    report.write_text(replace(sample(), sections=(empty,)).to_json(), encoding="utf-8")
    assert picture.main([str(report), "some"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: the report has no section none: there are some",
        f"error: {tmp_path / 'away.json'}: No such file or directory",
        "error: the section some has no plot",
    ]
