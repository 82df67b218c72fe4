"""Whether listeners speak SASL, and what handlers call where one does.

Place in the flow: the broker asks at its start. `sasl.py` and all that it needs is imported where a
listener speaks SASL, and not before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.handlers.registry import Registry
    from kbroker.handlers.services import Services
    from kbroker.metadata.store.base import MetadataStore
    from kbroker.purgatory.timer import CallLater
    from kbroker.server.dynamic_config import DynamicConfig

Dispatch = Callable[[Any], None]


def uses_sasl(config: BrokerConfig, listener: str) -> bool:
    """Whether the clients of a listener authenticate."""
    return config.listeners.protocol_of(listener).startswith("SASL")


def with_sasl(
    dispatch: Dispatch,
    registry: Registry,
    services: Services,
    store: Callable[[], MetadataStore],
    dynamic: DynamicConfig,
    call_later: CallLater,
) -> Dispatch:
    """This dispatch, without the frames of authentications; ConfigError as `Sasl`."""
    config = dynamic.config
    if not any(uses_sasl(config, name) for name in config.listeners.names):
        return dispatch
    from kbroker.server.sasl import Sasl

    sasl = Sasl(config, store(), lambda: services.controller.image)
    dynamic.add("the logins", sasl.follow)
    return sasl.before(dispatch, registry, services, call_later)
