"""Addresses: which page, and that each name comes back from its path as it went in."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import kbroker.console
from kbroker.console.page import to
from kbroker.console.routes import ROUTES, Kind, find
from tests.unit.console.hostile import TEXTS


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("/ui", "pages.overview"),
        ("/ui/", "pages.overview"),
        ("/ui/topics", "pages.topics"),
        ("/ui/topics/", "pages.topics"),
        ("/ui/topics/orders", "pages.topic"),
        ("/ui/topics/orders/messages", "pages.messages"),
        ("/ui/brokers/1", "pages.broker"),
    ],
)
def test_paths(path: str, module: str) -> None:
    found = find(path)
    assert found is not None and found.route.module == module


@pytest.mark.parametrize("path", ["/ui/nothing", "/ui/topics/a/b", "/ui/" + "a/" * 40, "/ui//x//"])
def test_other_paths_are_of_no_page(path: str) -> None:
    assert find(path) is None


NAMES = ("", ".", "..", "~", "~x", "a/b", "%2F", "a b", "a+b", "ü", "?x=1#y", *TEXTS)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_name_comes_back_as_it_went_in(name: str) -> None:
    path = to("groups", name)
    parts = urlsplit(f"http://localhost{path}").path.split("/")
    assert len(parts) == 4 and not {"", ".", ".."} & set(parts[1:])  # which browsers take out
    found = find(path)
    assert found is not None
    assert found.parameters == {"group": name.encode(errors="replace").decode()}


HERE = Path(kbroker.console.__file__).parent
# Those that no address has: steps that all changes share.
SHARED = ("writes.steps",)


def test_each_row_has_its_module() -> None:
    for route in ROUTES:
        module = import_module(f"kbroker.console.{route.module}")
        assert callable(getattr(module, route.function)), route
        assert route.kind is not Kind.TAIL or callable(module.columns_of)
        assert (route.kind is Kind.WRITE) == route.module.startswith("writes."), route


def test_each_module_of_a_page_has_its_row() -> None:
    modules = {
        f"{folder}.{path.stem}"
        for folder in ("pages", "writes")
        for path in (HERE / folder).glob("*.py")
        if path.stem != "__init__"
    }
    assert modules - {each.module for each in ROUTES} == set(SHARED)


def test_no_two_places_share_a_key() -> None:
    keys = [each.key for each in ROUTES if each.title]
    assert len(set(keys)) == len(keys) and all(len(each) == 1 for each in keys)
    # j, k and r are keys of every page; a place is gone to with g and its key.
    assert not any(each.key for each in ROUTES if each.kind is not Kind.PAGE)
