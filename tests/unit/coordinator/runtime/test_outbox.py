"""Work that is done in the order of the decisions, whatever one piece of it raises."""

from __future__ import annotations

import threading

import pytest

from kbroker.coordinator.runtime.outbox import Outbox
from kbroker.failures import Failures
from kbroker.log_lines import LogLines


def no_memory(*_: object, **__: object) -> None:
    raise MemoryError


@pytest.mark.parametrize("error", [ZeroDivisionError, MemoryError, SystemExit])
@pytest.mark.parametrize("is_said", [True, False])
def test_work_goes_on_after_work_that_raises(
    error: type[BaseException], is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no memory for a line about it."""
    failures, done = Failures("test"), list[int]()
    outbox = Outbox(threading.Lock(), failures)

    def fail(*_: object, **__: object) -> None:
        raise error

    if not is_said:
        monkeypatch.setattr(LogLines, "write", no_memory)
    outbox.add(fail)
    outbox.add(lambda: done.append(1))
    outbox.run()
    outbox.add(lambda: done.append(2))
    outbox.run()
    assert done == [1, 2]
    assert failures.count == 1
