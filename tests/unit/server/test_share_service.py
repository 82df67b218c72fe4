"""The share-partitions of a broker: the settings of their groups, and who follows the image."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.clock import ManualClock
from kbroker.config import share_settings
from kbroker.failures import Failures
from kbroker.purgatory.purgatory import Purgatory
from kbroker.purgatory.timer import Timer
from kbroker.server import share_service as module
from kbroker.server.share_service import ShareServiceOnDemand


class Image:
    """With the settings of groups."""

    def __init__(self, own: dict[str, dict[str, str]]) -> None:
        self._own = own

    def configs_of(self, kind: Any, name: str) -> dict[str, str]:
        return self._own.get(name, {})


class Broker:
    def __init__(self) -> None:
        self.config: Any = SimpleNamespace(node_id=1)
        self.image: Any = Image({})
        clock, nothing = ManualClock(), SimpleNamespace()
        hot: Any = nothing
        self.service = ShareServiceOnDemand(
            lambda: self.config, clock, Timer(clock), hot, lambda: self.image,
            lambda: nothing, Failures("share"),  # type: ignore[arg-type, return-value]
            Purgatory("ShareFetch", Timer(clock)),
        )  # fmt: skip


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was parsed, each time."""
    calls: list[object] = []

    def settings(config: Any, own: Any) -> tuple[Any, Any]:
        calls.append(own)
        return config, own

    monkeypatch.setattr(share_settings, "share_group_settings", settings)
    return calls


def test_settings_are_parsed_once_for_an_image(parsed: list[object]) -> None:
    broker = Broker()
    broker.image = Image({"g": {"a": "1"}})
    for _ in range(3):
        assert broker.service.settings("g") == (broker.config, {"a": "1"})
        assert broker.service.settings("h") == (broker.config, {})
    assert len(parsed) == 2
    broker.image = Image({"g": {"a": "2"}})
    assert broker.service.settings("g") == (broker.config, {"a": "2"})
    broker.config = SimpleNamespace(node_id=1, changed=True)
    assert broker.service.settings("g") == (broker.config, {"a": "2"})
    assert len(parsed) == 4


def test_settings_of_so_many_groups_are_kept(
    parsed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients name groups."""
    monkeypatch.setattr(module, "_SETTINGS_MAX", 2)
    broker = Broker()
    for name in ("a", "b", "c", "c", "a"):
        broker.service.settings(name)
    assert len(parsed) == 4


def test_the_latest_image_is_followed_on_a_handler() -> None:
    broker, soon, followed = Broker(), list[Callable[[], object]](), list[object]()
    broker.service.show(broker.image)  # there are no share-partitions
    leaders = SimpleNamespace(follow=lambda image, node_id: followed.append(image))
    made: Any = SimpleNamespace(call_soon=soon.append, leaders=leaders)
    broker.service._made = made
    images: list[Any] = [Image({}) for _ in range(3)]
    broker.service.show(images[0])
    broker.service.show(images[1])
    assert followed == []
    (follow,) = soon
    follow()
    assert followed == [images[1]]
    made.call_soon = fails
    broker.service.show(images[2])
    made.call_soon = soon.append
    broker.service.show(images[2])
    assert len(soon) == 2


def fails(_: object) -> None:
    raise MemoryError
