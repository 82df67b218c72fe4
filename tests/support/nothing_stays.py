"""Nothing stays: when its connections are gone, a broker is as it was before they came.

Every broker that a test stops has said in its log what stayed, if anything did. The ones with a
control connection are looked at while they live, too: after each test, if its clients are gone,
and before the end, when all connections are ended here. What waits for a time (a member that joins
a group is waited for) has an hour of the broker's own clock to come to its end.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from kbroker.observe.live_objects import STAYED, stayed
from kbroker.testing import process
from kbroker.testing.broker import Broker
from kbroker.testing.plain import PlainBroker
from kbroker.testing.process import ServerProcess

GOES_S: Final = 10.0
CLIENTS_CLOSE_S: Final = 0.2
_LOOK_S: Final = 0.01


class NothingStays:
    def stopping(self, server: ServerProcess) -> None:
        if isinstance(server, Broker) and not server.in_process:
            found = ended(server)
            assert not found, f"connections are gone, and these stay: {found}"

    def stopped(self, server: ServerProcess) -> None:
        if isinstance(server, PlainBroker):
            said = [line for line in server.log_text().splitlines() if STAYED in line]
            assert not said, said


WATCHER: Final = NothingStays()


def look_at_all() -> None:
    """After a test: those that outlive it and have no client now."""
    for server in process.running():
        if isinstance(server, Broker) and not server.in_process and server.alive:
            found = left(server, CLIENTS_CLOSE_S)
            if "connections" not in found:
                found = left(server, GOES_S)
                assert not found, f"after this test stay: {found}"


def look_at_levels() -> None:
    """After a test no logger of kbroker has a level: another test may expect lines, or none. A
    broker in this process has its log in a file, and lines of INFO in it, as long as it runs."""
    if logging.getLogger("kbroker").handlers:
        return
    levels = {
        name: logger.level
        for name, logger in logging.root.manager.loggerDict.items()
        if name.startswith("kbroker") and isinstance(logger, logging.Logger) and logger.level
    }
    for name in levels:
        logging.getLogger(name).setLevel(logging.NOTSET)
    assert not levels, f"this test leaves levels of loggers: {levels}"


def left(broker: Broker, within_s: float) -> dict[str, int]:
    """What connections have caused and is not gone in time; the inspector's own is not counted."""
    until = time.monotonic() + within_s
    while found := stayed(broker.live_objects()):
        if found == {"connections": 1} and broker.inspected:
            return {}
        if time.monotonic() > until:
            break
        time.sleep(_LOOK_S)
    return found


def ended(broker: Broker) -> dict[str, int]:
    """The same, after the end of all connections."""
    until = time.monotonic() + GOES_S
    later = False
    while True:
        broker.drop_connections()
        found = left(broker, GOES_S / 20)
        if not found or time.monotonic() > until:
            return found
        if not later:
            broker.clock.advance(hours=1)
            later = True
