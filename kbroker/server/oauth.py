"""The checks of bearer tokens on the listeners that have OAUTHBEARER.

Place in the flow: `sasl.py` asks for the validator of a listener when it makes its mechanisms.
Listeners with the same address of keys share its source (`security/jwks_source.py`), which fetches
them on a thread of its own from `start` on. Keys in a file are read once before that: a file that
is not there is an error of the start.

Built on the main thread; `validator` there and on the controller's; what it returns on any.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kbroker.clock import Clock, SystemClock
from kbroker.errors import ConfigError
from kbroker.security.jwks_fetch import FILE, JwksError
from kbroker.security.jwks_source import JwksSource
from kbroker.security.jws import TokenError
from kbroker.security.jwt import Claims, JwtValidator

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from kbroker.config.listener_security import ListenerSecurity
    from kbroker.config.oauth_settings import OAuthSettings
    from kbroker.purgatory.timer import CallLater
    from kbroker.security.oauth_server import Validator

logger: Final = logging.getLogger("kbroker.security")

_HTTP: Final = "http:"
_HTTPS: Final = "https:"


class OAuth:
    """See the head of this file."""

    def __init__(self) -> None:
        self._sources: dict[tuple[object, ...], JwksSource] = {}
        self._said: set[str] = set()
        self._clock: Clock = SystemClock()
        self._call_later: CallLater | None = None

    def start(self, clock: Clock, call_later: CallLater) -> None:
        """Once, before the first login."""
        self._clock, self._call_later = clock, call_later
        for source in self._sources.values():
            source.start(clock, call_later)

    def validator(self, security: ListenerSecurity, settings: OAuthSettings) -> Validator:
        """ConfigError: its keys are in a file that cannot be read."""
        claims = Claims(
            settings.subject, settings.scope, frozenset(settings.audiences), settings.issuer,
            settings.skew_s,
        )  # fmt: skip
        if not security.uses_tls:
            self._say(
                f"{security.name} takes bearer tokens without TLS: a program that reads one on its"
                " way can log in with it"
            )
        if settings.url.startswith(_HTTP):
            self._say(f"{settings.url} is read without TLS: who is between can let anyone in")
        source = self._source(settings)
        return JwtValidator(claims, source.now, source.missing, self._wall_ms)

    def _wall_ms(self) -> int:
        return self._clock.wall_ms()

    def _source(self, settings: OAuthSettings) -> JwksSource:
        times = settings.refresh_ms, settings.backoff_ms, settings.backoff_max_ms
        key = (settings.url, *times, settings.tls)
        known = self._sources.get(key)
        if known is not None:
            return known
        source = JwksSource(settings.url, *times, context=_context_of(settings))
        if settings.url.startswith(f"{FILE}:"):
            try:
                source.fetch_now()
            except (JwksError, TokenError) as error:
                raise ConfigError(
                    f"the keys of tokens in {settings.url} cannot be read: {error}",
                    "check the file",
                ) from None
        self._sources[key] = source
        if self._call_later is not None:
            source.start(self._clock, self._call_later)
        return source

    def _say(self, line: str) -> None:
        """Once: mechanisms are made again with each change of a setting."""
        if line not in self._said:
            self._said.add(line)
            logger.warning("%s", line)


def _context_of(settings: OAuthSettings) -> Callable[[], SSLContext] | None:
    """What makes the context of the server of keys, of the stores as they are then; None: the
    machine's authorities are meant. ConfigError: the options ssl.* do not do."""
    if not settings.tls or not settings.url.startswith(_HTTPS):
        return None
    from kbroker.config.client_settings import ClientSettings
    from kbroker.security.client_tls import client_tls

    place = f"the login module of OAUTHBEARER, for {settings.url}"
    options = ClientSettings(place, dict(settings.tls))

    def context() -> SSLContext:
        return client_tls(options).context

    context()  # what does not do is an error of the start
    return context
