"""Key and trust stores, as settings name them: read from files or from the settings themselves.

Place in the flow: a listener's TLS (`tls.py`) and a client's of ours (`client_tls.py`) are made of
them. Whatever cannot be read is a ConfigError that names the key. Files are read at once and not
kept open. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from kbroker.errors import ConfigError
from kbroker.security.pem import PEM_BYTES_MAX, certificates_of, private_key_of

KEY_FILE: Final = "ssl.keystore.location"
KEY: Final = "ssl.keystore.key"
CHAIN: Final = "ssl.keystore.certificate.chain"
PASSWORD: Final = "ssl.key.password"
TRUST_FILE: Final = "ssl.truststore.location"
TRUSTED: Final = "ssl.truststore.certificates"
FILES: Final = (KEY_FILE, TRUST_FILE)
_FIX_STORE: Final = "write it as PEM: the private key as PKCS#8, then its certificates"


class Settings(Protocol):
    """Of a listener or of a client; None: a key is not set."""

    def __getitem__(self, key: str, /) -> Any: ...

    def name_of(self, key: str) -> str:
        """How messages call the key."""
        ...


class Stores(NamedTuple):
    """In PEM as OpenSSL reads it. `trusted` None: the certificates that this machine trusts."""

    key: bytes
    chain: bytes
    password: bytes
    trusted: bytes | None

    def __repr__(self) -> str:
        return "<Stores>"  # the key is not for a log


def has_key_store(settings: Settings) -> bool:
    return any(settings[each] is not None for each in (KEY_FILE, KEY, CHAIN))


def read_stores(settings: Settings) -> Stores:
    """The stores as they are now."""
    key_from, chain_from = (KEY_FILE, KEY_FILE) if settings[KEY] is None else (KEY, CHAIN)
    return Stores(
        _of_store(settings, key_from, private_key_of),
        _of_store(settings, chain_from, certificates_of),
        (settings[PASSWORD] or "").encode(),
        read_trusted(settings),
    )


def read_trusted(settings: Settings) -> bytes | None:
    """The trust store alone."""
    for each in (TRUST_FILE, TRUSTED):
        if settings[each] is not None:
            return _of_store(settings, each, certificates_of)
    return None


def _of_store(settings: Settings, key: str, part_of: Callable[[bytes], bytes]) -> bytes:
    name = settings.name_of(key)
    if key in FILES:
        text, place = _read_file(name, settings[key]), f"{name}={settings[key]}"
    else:
        text, place = settings[key].encode(), name
    try:
        return part_of(text)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}", _FIX_STORE) from None


def _read_file(name: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{name}={path} cannot be read: {error.strerror}",
            "name a file that the broker's user may read",
        ) from None
