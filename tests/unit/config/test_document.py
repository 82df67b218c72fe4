"""The committed documentation is what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbroker.config import BROKER_KEYS, TOPIC_KEYS
from kbroker.config.document import main, pages

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize("name", sorted(pages()))
def test_committed_page_is_up_to_date(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == pages()[name], "run: python -m kbroker.config.document"


def test_every_key_has_its_line() -> None:
    page = pages()["configuration.md"]
    for name, key in BROKER_KEYS.items():
        assert (f"| `{name}` |" in page) == (not key.internal)
    for name in TOPIC_KEYS:
        assert f"| `{name}` |" in page


def test_pages_do_not_depend_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = BROKER_KEYS["num.network.threads"]
    before = pages()
    monkeypatch.setitem(BROKER_KEYS, key.name, key._replace(default=17))
    assert pages() == before
    assert main([str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(before)
