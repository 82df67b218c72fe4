"""The login of this broker at the others, and its TLS, as its configuration says it.

Place in the flow: each client of ours between brokers asks for it when it is made. Where there is
none, nothing is imported for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.security.client_login import ClientLogin

# Asked for when a client is made.
LoginOf = Callable[[], "ClientLogin | None"]


def no_login() -> None:
    """Where brokers do not authenticate."""


def own_login(config: BrokerConfig) -> ClientLogin | None:
    """None: brokers neither authenticate nor speak TLS. ConfigError: this one cannot do it."""
    security = _between_brokers(config)
    if security is None:
        return None
    from kbroker.config.sasl_logins import login_between_brokers
    from kbroker.security.client_login import ClientLogin

    found = login_between_brokers(config) if security.uses_sasl else None
    login = ClientLogin()
    if found is not None:
        login = ClientLogin(
            found.mechanism, found.name, found.password, token_file=found.token_file
        )
    if not security.uses_tls:
        return None if found is None else login
    from kbroker.security.client_tls import client_tls

    return login._replace(tls=client_tls(security))


def _between_brokers(config: BrokerConfig) -> ListenerSecurity | None:
    name = config.listeners.inter_broker_name
    return None if config.listeners.protocol_of(name) == "PLAINTEXT" else config.security_of(name)
