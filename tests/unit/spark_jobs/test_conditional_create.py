"""A store that creates on a condition: what is there in the end says who created it."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.files import CONDITIONAL, HadoopFiles

pytest.importorskip("py4j")

URI = "s3a://bucket/ledger/1.json"


class Store(HadoopFiles):
    """Hadoop's file system and its builder and stream in one, over a dict; no JVM.

    `fails`: when the stream is closed, `before` or `after` the object has appeared.
    """

    def __init__(self, *, fails: str = "") -> None:
        self.objects: dict[str, bytes] = {}
        self._conf = None
        self._fails = fails
        self._name = ""
        self._written = b""

    def read(self, uri: str) -> bytes:  # type: ignore[override]
        if uri not in self.objects:
            raise FileNotFoundError(uri)
        return self.objects[uri]

    def _path(self, uri: str) -> Any:
        self._name = uri
        return self

    def getFileSystem(self, conf: Any) -> Any:
        return self

    def hasPathCapability(self, path: Any, name: str) -> bool:
        return name == CONDITIONAL

    def createFile(self, path: Any) -> Any:
        return self

    def must(self, name: str, value: bool) -> Any:
        assert (name, value) == (CONDITIONAL, True)
        return self

    def build(self) -> Any:
        return self

    def write(self, data: bytes) -> None:
        self._written = data

    def close(self) -> None:
        if self._fails == "before" or self._name in self.objects:
            raise OSError("412")
        self.objects[self._name] = self._written
        if self._fails == "after":
            raise OSError("connection reset")


def test_a_name_that_is_taken_stays_as_it_is() -> None:
    store = Store()
    assert store.create(URI, b"first")
    assert not store.create(URI, b"second")
    assert store.objects == {URI: b"first"}


def test_an_answer_that_was_lost_is_not_a_refusal() -> None:
    store = Store(fails="after")
    assert store.create(URI, b"first")
    assert not store.create(URI, b"second")


def test_trouble_is_reported_where_nothing_appeared() -> None:
    with pytest.raises(OSError, match="412"):
        Store(fails="before").create(URI, b"first")
