"""A stream lasts beyond the limit of one request while its peer takes it; by a fake clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from kbroker.admin.server import BoundedProtocol
from kbroker.limits import ADMIN_REQUEST_TIMEOUT_S
from tests.unit.admin.test_bytes_ahead import REQUEST, FakeTransport

STEP_S = ADMIN_REQUEST_TIMEOUT_S / 2
STEPS = 6


class ManualLoop(asyncio.SelectorEventLoop):
    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


class Taking(FakeTransport):
    """Its peer takes what is written, or no more."""

    unread = 0

    def get_write_buffer_size(self) -> int:
        return self.unread


async def steps_until_the_end(loop: ManualLoop, *, prolongs: bool, unread_from: int = STEPS) -> int:
    """In how many steps the connection was not aborted."""
    asked: list[Any] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["extensions"]["kbroker.prolong"]["call"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass

    config = uvicorn.Config(application, ws="none", lifespan="off", log_config=None)
    config.load()
    protocol, transport = BoundedProtocol(config, ServerState(), {}), Taking()
    protocol.connection_made(transport)
    try:
        protocol.data_received(REQUEST)
        await asyncio.sleep(0)
        for step in range(STEPS):
            transport.unread = step >= unread_from
            if prolongs:
                asked[0]()
            loop.now_s += STEP_S
            for _ in range(3):
                await asyncio.sleep(0)  # timers that are due
            if transport.aborted:
                return step
        return STEPS
    finally:
        protocol.connection_lost(None)
        await asyncio.gather(*protocol.tasks)


@pytest.mark.parametrize(
    ("how", "steps"),
    [
        ({"prolongs": True}, STEPS),
        ({"prolongs": False}, 1),
        ({"prolongs": True, "unread_from": 3}, 3),  # the last one taken is step 2
    ],
    ids=["taken", "not prolonged", "not taken any more"],
)
def test_a_stream_goes_on_while_it_is_taken(how: dict[str, Any], steps: int) -> None:
    loop = ManualLoop()
    try:
        assert loop.run_until_complete(steps_until_the_end(loop, **how)) == steps
    finally:
        loop.close()
