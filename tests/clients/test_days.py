"""A whole day of each client comes out on kbroker as it did on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kbroker.testing.process import ServerProcess
from tests.clients.days import runs
from tests.support import servers

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def own_server() -> Iterator[ServerProcess]:
    """A broker without other tests' topics."""
    with servers.make() as broker:
        yield broker
        servers.assert_nothing_unexpected(broker)


@pytest.mark.parametrize(
    "client",
    [pytest.param(name, marks=[pytest.mark.java] * (name == runs.JAVA)) for name in runs.CLIENTS],
)
def test_the_day_comes_out_the_same(client: str, own_server: ServerProcess) -> None:
    wanted = [tuple(step) for step in json.loads(runs.recorded(client).read_text())]
    runs.clear(own_server.bootstrap)
    found = runs.day(client, own_server.bootstrap)
    assert [step for step, _ in found] == [step for step, _ in wanted]
    for (step, ours), (_, theirs) in zip(found, wanted, strict=True):
        assert ours == theirs, step
