"""`make report`'s program as a process: from nothing to a page that is whole and traceable."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from html.parser import HTMLParser
from typing import NamedTuple

import pytest

from spark_jobs.report_model import Report
from tests.support import requirements, spark, spark_classes
from tests.support.source_tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

WAIT_S_MAX = 540
# Attributes that a browser follows, and tags that bring something of their own.
FOLLOWED = {"href", "xlink:href", "src", "srcset", "data", "action", "formaction", "poster",
            "background", "cite", "manifest", "ping"}  # fmt: skip
FETCHING = {"script", "img", "iframe", "object", "embed", "base", "audio", "video"}
NO_ICON = "data:,"  # or a browser asks for /favicon.ico


class Page(HTMLParser):
    """What a page has: ids, what it would follow, what would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.followed: list[str] = []
        self.tags: set[str] = set()
        self.styles = ""
        self._style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._style = tag == "style"
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in FOLLOWED:
                self.followed.append(value or "")
            elif name == "style":
                self.styles += value or ""

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style:
            self.styles += data


class Made(NamedTuple):
    code: int
    said: str
    page: str
    report: Report


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    requirements.java()
    spark.jars()
    place = tmp_path_factory.mktemp("first") / "report"
    command = [sys.executable, "-m", "spark_jobs.first_report", "--directory", str(place),
               "--seconds", "10", "--no-kafka"]  # fmt: skip
    job = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=spark_classes.environment(),
    )  # fmt: skip
    try:
        said, _ = job.communicate(timeout=WAIT_S_MAX)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGTERM)  # it stops what it started itself
            job.wait()
    logs = "".join(log.read_text("utf-8", "replace") for log in (place / "log").glob("*.log"))
    assert (place / "report.json").exists(), said + logs
    return Made(
        job.returncode, said, (place / "report.html").read_text("utf-8"),
        Report.from_json((place / "report.json").read_bytes()),
    )  # fmt: skip


def test_it_says_where_the_report_is(made: Made) -> None:
    assert made.code == 0, made.said
    assert "done: " in made.said and "report.html" in made.said
    assert "spark_jobs.rows" in made.said.splitlines()[-1]


def test_every_number_says_which_rows_it_is_of(made: Made) -> None:
    """That these are the rows is test_end_to_end.py's."""
    numbers = [cell for _, cell in made.report.cells() if cell.value is not None]
    assert len(numbers) > 100
    assert all(cell.rows is not None for cell in numbers)


def test_it_is_of_the_load(made: Made) -> None:
    found = {section.key: section for section in made.report.sections}
    by_acks = found["latency"].tables[0]
    at = [by_acks.columns.index(name) for name in ("acks", "size, B", "blocks")]
    lines = {tuple(row[n].text for n in at) for row in by_acks.rows}
    assert {(acks, size, "3") for acks in ("1", "-1 (all)") for size in ("100", "1,024")} <= lines
    for key in ("traffic", "history", "hot", "pipeline"):
        assert found[key].tables and found[key].tables[0].rows, key


def test_traffic_is_a_curve(made: Made) -> None:
    """Not the one dot that samples of every 15 s make of a short load."""
    (traffic,) = (section for section in made.report.sections if section.key == "traffic")
    points = {plot.title: max(len(one.x) for one in plot.series) for plot in traffic.plots}
    assert points["Messages"] > 5 and points["Resident memory"] > 5, points


def test_the_page_opens_without_anything_from_outside(made: Made) -> None:
    page = Page(made.page)
    assert not page.tags & FETCHING
    assert page.styles and "url(" not in page.styles and "@import" not in page.styles
    assert "svg" in page.tags and page.followed
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.followed) - {f"#{one}" for one in page.ids} == {NO_ICON}
