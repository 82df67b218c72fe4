"""Key and trust stores, as settings name them: read from files or from the settings themselves.

Place in the flow: a listener's TLS (`tls.py`) and a client's of ours (`client_tls.py`) are made of
them. Whatever cannot be read is a ConfigError that names the key. A file is read once, at once, and
not kept open, so that key and chain are of the same moment. What is no file (a pipe, a device) is
refused, for its reader would wait. Any thread.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Final, NamedTuple, Protocol

from kbroker.errors import ConfigError
from kbroker.security.java_stores import JavaStore, java_store
from kbroker.security.pem import PEM_BYTES_MAX, certificates_of, private_key_of

KEY_FILE: Final = "ssl.keystore.location"
KEY_TYPE: Final = "ssl.keystore.type"
KEY_STORE_PASSWORD: Final = "ssl.keystore.password"
KEY: Final = "ssl.keystore.key"
CHAIN: Final = "ssl.keystore.certificate.chain"
PASSWORD: Final = "ssl.key.password"
TRUST_FILE: Final = "ssl.truststore.location"
TRUST_TYPE: Final = "ssl.truststore.type"
TRUST_STORE_PASSWORD: Final = "ssl.truststore.password"
TRUSTED: Final = "ssl.truststore.certificates"
FILES: Final = (KEY_FILE, TRUST_FILE)
PEM: Final = "PEM"
JAVA_STORES: Final = frozenset({"JKS", "PKCS12"})
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
    trusted = read_trusted(settings)
    if settings[KEY] is None and _is_java(settings, KEY_TYPE):
        place, data = _file(settings, KEY_FILE)
        own = _java_store(settings, place, data, KEY_STORE_PASSWORD, settings[PASSWORD] or "")
        if not own.key:
            raise ConfigError(f"{place}: there is no private key in it", _FIX_STORE)
        return Stores(own.key, own.chain, b"", trusted)
    if settings[KEY] is None:
        key_place, text = chain_place, chain = _file(settings, KEY_FILE)
    else:
        key_place, text = _setting(settings, KEY)
        chain_place, chain = _setting(settings, CHAIN)
    try:
        key = private_key_of(text)
    except ValueError as error:
        raise ConfigError(f"{key_place}: {error}", _FIX_STORE) from None
    return Stores(
        key, _certificates(chain_place, chain), (settings[PASSWORD] or "").encode(), trusted
    )


def read_trusted(settings: Settings) -> bytes | None:
    """The trust store alone."""
    if settings[TRUST_FILE] is not None:
        place, data = _file(settings, TRUST_FILE)
        if not _is_java(settings, TRUST_TYPE):
            return _certificates(place, data)
        trusted = _java_store(settings, place, data, TRUST_STORE_PASSWORD, None).trusted
        if not trusted:
            raise ConfigError(
                f"{place}: there is no trusted certificate in it",
                "import one with `keytool -importcert`",
            )
        return trusted
    if settings[TRUSTED] is not None:
        return _certificates(*_setting(settings, TRUSTED))
    return None


def _is_java(settings: Settings, kind: str) -> bool:
    return str(settings[kind]).upper() in JAVA_STORES


def _java_store(
    settings: Settings, place: str, data: bytes, password: str, key_password: str | None
) -> JavaStore:
    if len(data) > PEM_BYTES_MAX:
        raise ConfigError(f"{place}: it is longer than {PEM_BYTES_MAX} bytes")
    try:
        return java_store(data, settings[password] or "", key_password)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error.cause}", error.fix) from None
    except ValueError as error:
        raise ConfigError(f"{place}: {error}", f"see {settings.name_of(password)}") from None


def _certificates(place: str, text: bytes) -> bytes:
    try:
        return certificates_of(text)
    except ValueError as error:
        raise ConfigError(f"{place}: {error}", _FIX_STORE) from None


def _setting(settings: Settings, key: str) -> tuple[str, bytes]:
    return settings.name_of(key), settings[key].encode()


def _file(settings: Settings, key: str) -> tuple[str, bytes]:
    """What messages call it, and what is in it."""
    name, path = settings.name_of(key), settings[key]
    return f"{name}={path}", _read_file(name, path)


def _read_file(name: str, path: str) -> bytes:
    try:
        # Without O_NONBLOCK to open a pipe would wait for one that writes.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{name}={path} is no file", "name a file")
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(PEM_BYTES_MAX + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # a path with a character 0 is a ValueError
        raise ConfigError(
            f"{name}={path} cannot be read: {getattr(error, 'strerror', None) or error}",
            "name a file that the broker's user may read",
        ) from None
