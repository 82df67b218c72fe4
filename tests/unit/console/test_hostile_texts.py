"""What clients send does nothing on a page: read as a browser reads it, it is text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

import pytest

from kbroker.console.page import Page
from kbroker.console.render import Frame, Place, as_html
from kbroker.limits import CONSOLE_PATH_CHARS_MAX
from tests.unit.console.hostile import TEXTS, page_of

FRAME: Final = Frame("kbroker 1", [Place("Topics", "/ui/topics", "t", True)])
# Elements and attributes of the template; a text that made another one would add to them.
_ELEMENTS: Final = """html head meta title link noscript script body a header span nav ul li form
    button main div ol h1 p strong section h2 dl dt dd pre table thead tr th tbody td input label
    select option small footer kbd"""
_ATTRIBUTES: Final = """lang charset name content rel href http-equiv type src class aria-hidden
    aria-label data-key data-refresh-s data-tail id tabindex role aria-labelledby title scope method
    action value for aria-describedby autocomplete spellcheck selected aria-current"""
ELEMENTS: Final = frozenset(_ELEMENTS.split())
ATTRIBUTES: Final = frozenset(_ATTRIBUTES.split())
ADDRESSES: Final = ("href", "src", "action", "data-tail")


class Reader(HTMLParser):
    """Elements, attributes and text of a page."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: Page, frame: Frame = FRAME) -> Reader:
    return Reader(as_html(page, frame, lambda: None))


PLAIN: Final = read(page_of("plain"))


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_hostile_text_is_text(text: str) -> None:
    found = read(page_of(text))
    assert set(found.elements) <= ELEMENTS
    assert {name for name, _ in found.attributes} <= ATTRIBUTES
    # A name that is a path may be a link, or an odd value none; no other element comes or goes.
    ours = [each for each in found.elements if each not in ("a", "pre")]
    if len(text) < CONSOLE_PATH_CHARS_MAX:  # a longer path is no link to the next rows
        assert ours == [each for each in PLAIN.elements if each not in ("a", "pre")]
    for name, value in found.attributes:
        if name in ADDRESSES:
            assert value.startswith(("/ui/", "#main", "data:image/svg+xml,")) or not value
    text_of_page = "".join(found.text).replace("\n", "").replace("\t", "")
    assert text_of_page.isprintable()


def test_the_names_of_visitors_and_the_broker_are_text() -> None:
    for text in TEXTS:
        found = read(page_of("plain"), FRAME._replace(visitor=text[:100], footer="x"))
        assert set(found.elements) <= ELEMENTS
        assert "onerror" not in {name for name, _ in found.attributes}


def test_the_pages_ask_no_other_host() -> None:
    """Nothing is loaded but a style sheet and a script, both from here."""
    loaded = [value for name, value in PLAIN.attributes if name in ("src", "href")]
    assert all(each.startswith(("/ui/", "#", "data:image/svg+xml,")) for each in loaded if each)


def test_heads_of_rows_and_columns_say_so() -> None:
    scopes = [value for name, value in PLAIN.attributes if name == "scope"]
    assert len(scopes) == PLAIN.elements.count("th") and set(scopes) == {"row", "col"}


def test_there_is_no_script_or_style_in_a_page() -> None:
    page = as_html(page_of("plain"), FRAME, lambda: None)
    assert page.count(b"<script") == 1
    assert (
        b"<style" not in page and b"style=" not in page and b" on" not in page.replace(b" on ", b"")
    )
