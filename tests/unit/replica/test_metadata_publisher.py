"""What the publisher hands to C where an observer of it fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from kbroker.metadata.image import NO_CONFIGS, ClusterImage, PartitionImage, TopicImage
from kbroker.replica import metadata_publisher
from kbroker.replica.metadata_publisher import MetadataPublisher


class Table:
    """In place of the table in C."""

    def __init__(self) -> None:
        self.listed: list[tuple[list[str], list[str]]] = []
        self.hidden = 0

    def show(self, rows: Sequence[str], removed: Sequence[str], *_: Any) -> None:
        self.listed.append((list(rows), list(removed)))

    def hide(self) -> None:
        self.hidden += 1


def topic(name: str) -> TopicImage:
    partitions = (PartitionImage(name, 0, (1,), (1,), 1, 0, 0),)
    return TopicImage(name, UUID(int=len(name)), partitions, NO_CONFIGS, internal=False)


def test_an_observer_that_fails_takes_no_answers_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C has the image by then; the next one is compared with it."""
    monkeypatch.setattr(metadata_publisher, "_row", lambda topic: topic.name)
    table: Any = Table()
    publisher = MetadataPublisher(table)

    def fails(*_: object) -> None:
        raise MemoryError

    publisher.changed = fails
    image = ClusterImage().with_topics([topic("a")])
    publisher.show(image)
    assert table.hidden == 0
    assert "is not known until they change again" in caplog.text
    seen: list[tuple[list[str], list[str]]] = []
    publisher.changed = lambda some, gone: seen.append(([each.name for each in some], [*gone]))
    both = image.with_topics([topic("bb")])
    publisher.show(both)
    publisher.show(both.without_topics(["a"]))
    assert table.listed == [(["a"], []), (["bb"], []), ([], ["a"])]
    assert seen == table.listed[1:]
