"""What the console asks of the broker that serves it: figures, causes, and a way in for visitors.

Place in the flow: the admin port's HTTP side gets one; the console's threads call it. Nothing of it
is imported before the admin port's first connection.

A visitor without a name comes in where every client may: through a listener without SASL. With an
authorizer, or where all listeners authenticate, visitors log in, through a listener with SASL. So
do visitors of other machines where one listener authenticates: one that does not may be for brokers
alone, and they could not come there themselves. If there is no listener to log in, visitors of this
machine have the rights of clients without a name, as they have through the listener itself, and
others have no way in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.errors import UserError
from kbroker.server.authorizer import CLASS
from kbroker.server.sasl_listeners import uses_sasl

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.console.visitor import Way
    from kbroker.metrics.model import Figures
    from kbroker.observe.why.facts import Question
    from kbroker.security.client_tls import ClientTls


class Answers(Protocol):
    def connections_by_principal(self, most: int) -> tuple[list[tuple[str, str, int]], int]: ...
    def why(self, question: Question) -> dict[str, Any]: ...


class Phase(Protocol):
    phase: str

    @property
    def running(self) -> bool: ...


class Serving(Protocol):
    """`Broker` is one."""

    @property
    def config(self) -> BrokerConfig: ...
    @property
    def readiness(self) -> Phase: ...
    @property
    def observation(self) -> Answers: ...
    def own_address(self, listener: str = "") -> str: ...
    def figures(self, *, every_partition: bool | None = None) -> Figures: ...


class ConsolePort:
    """Any thread."""

    def __init__(self, broker: Serving) -> None:
        self._broker = broker

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def config(self) -> BrokerConfig:
        return self._broker.config

    def figures(self) -> Figures:
        """UserError: the broker does not run yet, or no more."""
        self._require_running()
        return self._broker.figures(every_partition=False)

    def connections_by_principal(self, most: int) -> tuple[list[tuple[str, str, int]], int]:
        """UserError, as `figures`."""
        self._require_running()
        return self._broker.observation.connections_by_principal(most)

    def why(self, question: Question) -> dict[str, Any]:
        """UserError as `figures`."""
        self._require_running()
        return self._broker.observation.why(question)

    def way(self, *, is_local: bool) -> Way:
        """UserError: there is none."""
        from kbroker.console.visitor import MECHANISMS, Way

        config = self.config
        # Other brokers are reached where brokers reach them, if visitors may come there.
        names = sorted(
            config.listeners.names, key=lambda name: name != config.listeners.inter_broker_name
        )
        plain = [name for name in names if config.listeners.protocol_of(name) == "PLAINTEXT"]
        with_sasl = [name for name in config.listeners.names if uses_sasl(config, name)]
        with_tls = [name for name in names if config.listeners.protocol_of(name) == "SSL"]
        is_guarded = bool(with_sasl) or any(
            config.security_of(name).client_auth == "required" for name in with_tls
        )
        if not config[CLASS] and plain and (is_local or not is_guarded):
            return Way(self._broker.own_address(plain[0]), (), None)
        for name in with_sasl:
            security = config.security_of(name)
            mechanisms = tuple(each for each in MECHANISMS if each in security.mechanisms)
            if mechanisms and security.client_auth != "required":
                tls = _visitors_tls(security) if security.uses_tls else None
                return Way(self._address_of(name, security), mechanisms, tls)
        if is_local or not (config[CLASS] or is_guarded):
            if plain:
                return Way(self._broker.own_address(plain[0]), (), None)
            for name in with_tls:
                security = config.security_of(name)
                if security.client_auth != "required":
                    return Way(self._address_of(name, security), (), _visitors_tls(security))
        raise UserError(
            "the console has no way into this broker for you",
            f"add a listener with SASL and one of {', '.join(MECHANISMS)}",
        )

    def _require_running(self) -> None:
        """The admin port is served before other parts are there, and after they have gone."""
        readiness = self._broker.readiness
        if not readiness.running:
            raise UserError(f"this broker is {readiness.phase}", "try again when it runs")

    def _address_of(self, listener: str, security: ListenerSecurity) -> str:
        """Of a listener with TLS that which is in its certificate, if it is advertised. Without TLS
        no password leaves this machine: another one may be at the advertised address."""
        from kbroker.config.listeners import format_address

        endpoint = self.config.listeners.advertised_for(listener)
        if endpoint is None or not security.uses_tls:
            return self._broker.own_address(listener)
        return format_address(endpoint.host, endpoint.port)


def _visitors_tls(security: ListenerSecurity) -> ClientTls:
    """As brokers speak it, but without a certificate: a visitor must not have the broker's. Where
    there is no trust store, the listener's own certificates are trusted."""
    from kbroker.security import stores
    from kbroker.security.client_tls import client_tls

    values: dict[str, Any] = dict.fromkeys((stores.KEY_FILE, stores.KEY, stores.CHAIN))
    if security[stores.TRUST_FILE] is None and security[stores.TRUSTED] is None:
        values[stores.TRUSTED] = stores.read_stores(security).chain.decode("ascii")
        values[stores.TRUST_TYPE] = stores.PEM
    return client_tls(_Changed(security, values))


class _Changed:
    """The settings of a listener, some of them others."""

    def __init__(self, security: ListenerSecurity, values: Mapping[str, Any]) -> None:
        self._security = security
        self._values = values

    def name_of(self, key: str) -> str:
        return self._security.name_of(key)

    def __getitem__(self, key: str) -> Any:
        return self._values[key] if key in self._values else self._security[key]
