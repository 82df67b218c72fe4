"""The keys `ssl.*` of a client of ours, with the types and defaults that a broker's have.

Place in the flow: `--command-config` has them in a file, and the login module of OAUTHBEARER among
its options, for the server of keys; `security/client_tls.py` makes a context of them. Trouble is a
ConfigError that says where the key is, and never what a password is. Immutable; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kbroker.config.definition import BROKER_KEYS
from kbroker.config.key import InvalidValue, parse_value
from kbroker.errors import ConfigError

_PEM: Final = "PEM"
_STORE_TYPES: Final = (_PEM, "PKCS12", "JKS")
_STORES: Final = (
    ("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password"),
    ("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password"),
)


class ClientSettings:
    """`place`: where they are, for messages. ConfigError: they name a store that there cannot
    be."""

    __slots__ = ("_place", "_settings")

    def __init__(self, place: str, settings: Mapping[str, str]) -> None:
        self._place: Final = place
        self._settings: Final = settings
        for kind, location, password in _STORES:
            self._check_store(kind, location, password)

    def _check_store(self, kind: str, location: str, password: str) -> None:
        settings = self._settings
        stored = settings.get(kind, "JKS").upper()
        if settings.get(location) and stored not in _STORE_TYPES:
            raise ConfigError(
                f"{self.name_of(kind)}={settings[kind]} is no type of store",
                f"use {', '.join(_STORE_TYPES)}",
            )
        if settings.get(password) and stored == _PEM:
            raise ConfigError(f"{self.name_of(password)}: a PEM file has none", "leave it unset")

    def name_of(self, key: str) -> str:
        return f"{self._place}: {key}"

    def __getitem__(self, key: str) -> Any:
        row, text = BROKER_KEYS[key], self._settings.get(key)
        if text is None or (not text and row.default is None):
            return row.default
        try:
            return parse_value(row, text)
        except InvalidValue as error:
            raise ConfigError(f"{self.name_of(key)} is not allowed", error.allowed) from None
