"""kbroker as another checkout has it, built there: what a change is measured against."""

from __future__ import annotations

from pathlib import Path

from perf.brokers.base import BrokerError
from perf.brokers.kbroker import KbrokerBroker


class BaselineBroker(KbrokerBroker):
    """One node of the kbroker in `checkout`, under this one's interpreter and libraries."""

    name = "baseline"

    def __init__(self, directory: Path, checkout: Path) -> None:
        super().__init__(directory)
        self._checkout = checkout.resolve()
        if not list(self._checkout.glob("kbroker/_net.*.so")):
            raise BrokerError(
                f"no built kbroker in {checkout}: its compiled core is missing -> run `make build`"
                " there"
            )

    def environment(self) -> dict[str, str]:
        # Before the installed one, and before this checkout.
        return {**super().environment(), "PYTHONPATH": str(self._checkout)}

    def version(self) -> str:
        return str(self._checkout)
