"""The login of this broker at the others, as its configuration says it.

Place in the flow: each client of ours between brokers asks for it when it is made. Where there is
none, nothing is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.security.client_login import ClientLogin

# Asked for when a client is made.
LoginOf = Callable[[], "ClientLogin | None"]


def no_login() -> None:
    """Where brokers do not authenticate."""


def own_login(config: BrokerConfig) -> ClientLogin | None:
    """None: brokers do not authenticate. ConfigError: this one has to, and cannot."""
    if not config.listeners.protocol_of(config.listeners.inter_broker_name).startswith("SASL"):
        return None
    from kbroker.config.sasl_logins import login_between_brokers
    from kbroker.security.client_login import ClientLogin

    found = login_between_brokers(config)
    return None if found is None else ClientLogin(*found)
