"""SASL as the configuration asks for it: which listeners authenticate, with which mechanisms.

Place in the flow: built by the broker where a listener speaks SASL. Handlers get the frames of
authentications out of their dispatch here (`handlers/authentication.py`). The mechanisms are made
of the configuration, again when it changes; users of PLAIN are in it, those of SCRAM in the image.

Built and started on the main thread; `follow` on the controller's; the rest on any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from kbroker.config.oauth_settings import OAUTHBEARER, oauth_settings
from kbroker.config.sasl_logins import (
    NO_OPTIONS,
    SERVED,
    check_sasl,
    ignored_texts,
    login_module,
)
from kbroker.handlers.authentication import Authentication, Dispatch, Mechanisms, Offered
from kbroker.metadata.controller.own_nodes import sasl_secret
from kbroker.metadata.users import ImageUsers
from kbroker.security.plain import PLAIN, PlainServer
from kbroker.security.scram import ScramMechanism
from kbroker.security.scram_server import ScramServer

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.handlers.registry import Registry
    from kbroker.handlers.services import Services
    from kbroker.metadata.image import ClusterImage
    from kbroker.metadata.store.base import MetadataStore
    from kbroker.purgatory.timer import CallLater
    from kbroker.security.mechanism import MakeMechanism
    from kbroker.server.oauth import OAuth

logger: Final = logging.getLogger("kbroker.security")

MAX_REAUTH: Final = "connections.max.reauth.ms"
TOKEN_SECRET: Final = "delegation.token.secret.key"
_NONE: Final[Mechanisms] = MappingProxyType({})


class Sasl:
    """See the head of this file."""

    def __init__(
        self, config: BrokerConfig, store: MetadataStore, image: Callable[[], ClusterImage]
    ) -> None:
        """ConfigError: a listener lets no client in, or this broker has to log in at others, and
        cannot."""
        check_sasl(config)
        for name in ignored_texts(config):
            logger.warning(
                "%s is not used: write listener.name.NAME.MECHANISM.sasl.jaas.config", name
            )
        # Without SCRAM, too: its mechanisms may be switched on later.
        self._users: Final = ImageUsers(image, sasl_secret(store), config[TOKEN_SECRET])
        self._oauth: OAuth | None = None  # made for the first listener that has OAUTHBEARER
        self._started: tuple[Clock, CallLater] | None = None
        self._by_listener = self._mechanisms_of(config)

    def follow(self, before: BrokerConfig, now: BrokerConfig) -> None:
        """Logins may have changed; those under way go on with the mechanism that they have."""
        self._by_listener = self._mechanisms_of(now)

    def mechanisms(self, listener: str) -> Mechanisms:
        return self._by_listener.get(listener, _NONE)

    def before(
        self, dispatch: Dispatch, registry: Registry, services: Services, call_later: CallLater
    ) -> Dispatch:
        """This dispatch, without the frames of authentications."""
        self._started = services.clock, call_later
        if self._oauth is not None:
            self._oauth.start(*self._started)
        authentication = Authentication(registry, services, self.mechanisms, call_later)
        services.authentications = authentication.counts
        return authentication.before(dispatch)

    def _mechanisms_of(self, config: BrokerConfig) -> Mapping[str, Mechanisms]:
        return {
            security.name: {
                each: Offered(self._maker(security, each), security.of_mechanism(each, MAX_REAUTH))
                for each in security.mechanisms
                if each in SERVED
            }
            for security in _secured(config)
        }

    def _maker(self, security: ListenerSecurity, mechanism: str) -> MakeMechanism:
        if mechanism == PLAIN:
            module = login_module(security, mechanism)
            return partial(PlainServer, {} if module is None else module.users)
        if mechanism == OAUTHBEARER:
            return self._maker_of_oauth(security)
        return partial(ScramServer, ScramMechanism(mechanism), self._users)

    def _maker_of_oauth(self, security: ListenerSecurity) -> MakeMechanism:
        from kbroker.security.oauth_server import OAuthServer  # few brokers have it
        from kbroker.server.oauth import OAuth

        module = login_module(security, OAUTHBEARER)
        options = NO_OPTIONS if module is None else module.options
        settings = oauth_settings(security, options)
        if self._oauth is None:
            self._oauth = OAuth()
            if self._started is not None:
                self._oauth.start(*self._started)
        return partial(OAuthServer, self._oauth.validator(security, settings))


def _secured(config: BrokerConfig) -> list[ListenerSecurity]:
    all_of_them = map(config.security_of, config.listeners.names)
    return [security for security in all_of_them if security.uses_sasl]
