"""Passwords that are set for brokers at run time: encrypted where they are stored.

Place in the flow: `DynamicConfig` has one. The controller stores the result of `stored`; the
broker uses the result of `opened`. Without `password.encoder.secret` no password is stored. One
that was stored before there was this rule is a plain text and remains readable. Settings that are
not known may be passwords, too: they are encrypted where there is a secret.

Holds the secrets of the broker's own configuration, which do not change while it runs. Any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.config.definition import find_broker_key
from kbroker.errors import ConfigError, ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

SECRET: Final = "password.encoder.secret"
OLD_SECRET: Final = "password.encoder.old.secret"


class SealedSettings:
    def __init__(self, started: BrokerConfig) -> None:
        self._secret: str = started[SECRET] or ""
        old: str = started[OLD_SECRET] or ""
        self._secrets = [each for each in (self._secret, old) if each]

    def stored(self, before: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
        """`wanted` with its passwords encrypted; `before` is what is stored. One that is the same
        as before remains as it is stored. KafkaError: a password cannot be stored."""
        after = dict(wanted)
        for name in _passwords(wanted):
            held = before.get(name)
            if held is not None and self._is_same(held, wanted[name]):
                after[name] = held
            else:
                after[name] = self._sealed(name, wanted[name])
        return after

    def _is_same(self, held: str, text: str) -> bool:
        from kbroker.security.sealed_text import NotOpened, is_sealed, opened

        if not is_sealed(held):
            return held == text and not self._secret
        try:  # one of the old secret is encrypted again
            return opened(self._secret, held) == text
        except (NotOpened, ConfigError):
            return False

    def _sealed(self, name: str, text: str) -> str:
        from kbroker.security.sealed_text import NotOpened, seal

        if not self._secret and find_broker_key(name) is None:
            return text
        if not self._secret:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is a password, which is stored only encrypted: start the brokers with"
                f" {SECRET}, the same for all, or write {name} into their configuration files",
            )
        try:
            return seal(self._secret, text)
        except (ConfigError, NotOpened, ValueError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name}: {error}") from None

    def opened(self, values: Mapping[str, str]) -> tuple[Mapping[str, str], list[str]]:
        """The settings with their passwords, and a line for each that cannot be read and is left
        out. Does not raise."""
        names = list(_passwords(values))
        if not names:
            return values, []
        from kbroker.security.sealed_text import NotOpened, is_sealed

        found, troubles = dict(values), []
        for name in names:
            if not is_sealed(values[name]):
                continue
            try:
                found[name] = self._opened(values[name])
            except (NotOpened, ConfigError) as error:
                del found[name]
                troubles.append(
                    f"{name} cannot be decrypted: {error} -> start with the {SECRET} of when it was"
                    f" stored, perhaps as {OLD_SECRET}, or set it again"
                )
        return found, troubles

    def _opened(self, sealed: str) -> str:
        from kbroker.security.sealed_text import NotOpened, opened

        why = NotOpened(f"there is no {SECRET}")
        for secret in self._secrets:
            try:
                return opened(secret, sealed)
            except NotOpened as error:
                why = error
        raise why


def _passwords(values: Iterable[str]) -> Iterable[str]:
    for name in values:
        key = find_broker_key(name)
        if key is None or key.sensitive:
            yield name
