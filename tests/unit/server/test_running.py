"""What `kbroker start` does with the garbage of a start before it puts all of it out of sight."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.server import running


class Cycle:
    """No other's than its own."""

    def __init__(self) -> None:
        self.itself = self


class Signals:
    """An end that has been asked for."""

    def install(self, give_up: Callable[[], None]) -> None:
        pass

    def wait(self, reload: Callable[[], None], reopen: Callable[[], None]) -> signal.Signals:
        return signal.SIGTERM


def a_broker(has_offline_logs: bool) -> Any:
    class Started:
        garbage: weakref.ref[Cycle]

        def __init__(self, *_: object, before_logs: Callable[[], None]) -> None:
            self.has_offline_logs = has_offline_logs

        def start(self) -> None:
            type(self).garbage = weakref.ref(Cycle())

        def reload(self) -> None:
            pass

        def give_up_start(self) -> None:
            pass

        def stop(self) -> bool:
            return True

        def live_objects(self) -> dict[str, int]:
            return {}

    return Started


@pytest.mark.parametrize("has_offline_logs", [False, True])
def test_a_broker_that_could_not_be_opened_is_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_offline_logs: bool
) -> None:
    monkeypatch.setattr(running, "EndSignal", Signals)
    monkeypatch.setattr(running, "configure_logging", lambda *_: None)
    monkeypatch.setattr(running, "log_what_stayed", lambda _: None)
    monkeypatch.setattr("sys.setswitchinterval", lambda _: None)
    made = a_broker(has_offline_logs)
    config = BrokerConfig.load()
    try:
        assert running.run(config, data_dir=str(tmp_path), ready_file=None, make=made) == 0
        assert gc.isenabled()
        assert (made.garbage() is None) == has_offline_logs
    finally:
        gc.unfreeze()
        gc.collect()
