"""Brokers of a test's own, to be started, stopped and killed at will."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kbroker.testing.plain import PlainBroker as Broker
from lab.ports import free_port
from tests.support import servers

MakeBroker = Callable[..., Broker]


@pytest.fixture
def make_broker() -> Iterator[MakeBroker]:
    """make_broker(...) -> a Broker, not started; whatever it became is ended after the test."""
    with ExitStack() as stack:

        def make(*arguments: object, **options: object) -> Broker:
            options.setdefault("port", free_port())  # its own while it is down, too
            broker = Broker(*arguments, **options)  # type: ignore[arg-type]
            stack.callback(broker.close)
            stack.callback(servers.assert_nothing_unexpected, broker)
            return broker

        yield make


@pytest.fixture
def broker(make_broker: MakeBroker) -> Broker:
    return make_broker().start()
