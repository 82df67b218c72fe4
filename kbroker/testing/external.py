"""A broker that runs already, for tests with the option (`--kbroker-external`).

Topics, records and groups can be looked at; faults, the clock and the request trace need a broker
of one's own.
"""

from __future__ import annotations

import threading
from typing import Any, NoReturn

from kbroker.testing.inspection import Inspected, Inspection


class ExternalBroker(Inspected):
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._inspecting = threading.RLock()
        self._inspection = Inspection(bootstrap)

    def close(self) -> None:
        self._inspection.close()

    def clear(self) -> None:
        """There are no rules here."""

    def on(self, *_: Any, **__: Any) -> NoReturn:
        raise RuntimeError(
            f"{self.bootstrap} is an external broker and cannot be made to fail; "
            "leave --kbroker-external out"
        )

    delay = drop_connections = requests = on

    @property
    def clock(self) -> NoReturn:
        raise RuntimeError(f"{self.bootstrap} is an external broker; its clock is its own")

    def _look(self) -> Inspection:
        return self._inspection
