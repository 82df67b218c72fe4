"""A report's page in a real browser: Chromium, light and dark, from a file, with no network.

What must hold: nothing is asked for but the file itself, nothing is on the console, every number
has its address and leads to its rows, text is readable in both themes as the browser computed it,
no part of a plot is black on black, a phone can read it. The screenshots stay in pytest's directory
of the test.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="missing: matplotlib (extra `report`)")
pytest.importorskip("jinja2", reason="missing: jinja2 (extra `report`)")

from spark_jobs.html import theme
from spark_jobs.html.page import render
from tests.support.browser import Browser
from tests.support.contrast import contrast
from tests.unit.spark_jobs.sample import sample

THEMES = {"light": theme.LIGHT, "dark": theme.DARK}
PNG = b"\x89PNG\r\n\x1a\n"
SCROLL_S = 10.0

# Of every element with text of its own: its colour and the first ground under it that is opaque.
TEXTS = """
(() => {
  const ground = e => { for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (c && !/, 0\\)$|transparent/.test(c)) return c; } return "none"; };
  const found = new Set();
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    found.add((e.namespaceURI.endsWith("svg") ? style.fill : style.color) + "|" + ground(e));
  }
  return [...found];
})()
"""
STROKES = """
[...new Set([...document.querySelectorAll(".plot path, .plot use")]
  .filter(e => !e.closest("defs"))
  .flatMap(e => { const s = getComputedStyle(e); return [s.stroke, s.fill]; }))]
"""
CELLS = "[...document.querySelectorAll('td[id]')].map(e => [e.id, e.title, e.innerText.trim()])"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser.start(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(sample()), "utf-8")
    return path


def rgb(text: str) -> str:
    """rgb(1, 2, 3) as #010203."""
    numbers = text[text.index("(") + 1 : text.index(")")].split(",")
    return "#" + "".join(f"{int(number):02x}" for number in numbers[:3])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_alone_and_is_readable(
    browser: Browser, page: Path, tmp_path: Path, scheme: str
) -> None:
    browser.open(page, scheme=scheme)
    assert browser.requests == [page.as_uri()]
    assert browser.console == []
    assert browser.value("document.title").startswith("kbroker report")
    colours = THEMES[scheme]
    ground = browser.value("getComputedStyle(document.body).backgroundColor")
    assert rgb(ground) == colours["page"]
    pairs = [pair.split("|") for pair in browser.value(TEXTS)]
    assert len(pairs) > 4
    low = [p for p in pairs if contrast(rgb(p[0]), rgb(p[1])) < 4.5]
    assert not low
    drawn = {rgb(c) for c in browser.value(STROKES) if c.startswith("rgb")}
    assert {colours["c0"], colours["c1"]} <= drawn <= set(colours.values())
    shot = browser.screenshot(tmp_path / f"{scheme}.png", whole=True).read_bytes()
    assert shot.startswith(PNG)
    assert len(shot) > 20_000


def test_every_number_has_its_address_and_leads_to_its_rows(browser: Browser, page: Path) -> None:
    browser.open(page, scheme="light")
    charts = {place: (title, text) for place, title, text in browser.value(CELLS)}
    assert set(charts) == {address for address, _ in sample().cells()}
    assert all(title.startswith(address) for address, (title, _) in charts.items())
    numbers = [address for address, cell in sample().cells() if cell.rows is not None]
    assert len(numbers) == 6
    hidden = "document.querySelector('details').open"
    assert browser.value(hidden) is False
    browser.value(f"document.querySelector('[id=\"{numbers[0]}\"] a').click()")
    deadline = time.monotonic() + SCROLL_S
    while not browser.value(hidden) and time.monotonic() < deadline:
        pass
    assert browser.value(hidden) is True
    target = browser.value("document.querySelector(':target').innerText")
    assert "results" in target
    assert "cell = 'p-1k'" in target


def test_a_phone_can_read_it(browser: Browser, page: Path) -> None:
    browser.open(page, scheme="dark", width=360, height=740)
    assert browser.value("document.documentElement.scrollWidth") <= 360


def test_paper_is_white_for_a_reader_in_the_dark(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    browser.open(page, scheme="dark")
    browser.media(scheme="dark", media="print")
    assert rgb(browser.value("getComputedStyle(document.body).backgroundColor")) == "#ffffff"
    assert rgb(browser.value("getComputedStyle(document.body).color")) == theme.LIGHT["ink"]
    assert browser.pdf(tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_the_browser_notices_forbidden_actions_of_a_page(browser: Browser, tmp_path: Path) -> None:
    """So that the empty lists above mean something."""
    bad = tmp_path / "bad.html"
    bad.write_text("<title>x</title><img src='http://127.0.0.1:9/x.png'><script>boom()</script>")
    browser.open(bad, scheme="light")
    assert any("127.0.0.1:9" in url for url in browser.requests)
    assert any("boom" in line for line in browser.console)


def test_a_script_that_came_with_a_record_would_not_run(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    """Were the escaping to fail, the page's own policy still holds."""
    forced = tmp_path / "forced.html"
    script = "<script>document.title = 'owned'</script></main>"
    forced.write_text(page.read_text("utf-8").replace("</main>", script), "utf-8")
    browser.open(forced, scheme="light")
    assert browser.value("document.title") != "owned"
    assert any("Content Security Policy" in line for line in browser.console)
