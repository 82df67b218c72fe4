"""Java's key and trust stores, JKS and PKCS12, brought into the PEM that OpenSSL reads.

Place in the flow: `stores.py` calls it for a file whose type is one of them. Which of the two a
file is, its first bytes say, since Java opens either under both names. JKS needs nothing but this
package. PKCS12 is read by `cryptography`, of the extra [security], which is imported only then.

Of several keys the first is taken, as Java does. Any thread. No text of a key or of a password is
in a message.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from kbroker.errors import ConfigError
from kbroker.security import jks
from kbroker.security.der import SEQUENCE, Value, only_value, values_of

EXTRA: Final = "security"
_FIX_EXTRA: Final = (
    f"install it with `pip install 'kbroker[{EXTRA}]'`, or write the store as JKS or PEM"
)
_FIX_TYPE: Final = "set the store's type to PEM"
_FIX_CONVERT: Final = (
    "convert it with `keytool -importkeystore -srckeystore OLD -destkeystore NEW"
    " -deststoretype pkcs12`"
)
_LINE_CHARS: Final = 64


class JavaStore(NamedTuple):
    """In PEM; `key` and `chain` are empty where there is no key. `trusted`: certificates that do
    not go with a key."""

    key: bytes
    chain: bytes
    trusted: bytes


def java_store(data: bytes, password: str, key_password: str | None) -> JavaStore:
    """`key_password` None: keys are left alone; empty: they have the store's. ValueError: why it
    cannot be read. ConfigError: what to do about it is known."""
    if data.startswith(jks.MAGIC):
        return _of_jks(data, password, key_password)
    if data.startswith(jks.MAGIC_JCEKS):
        raise ConfigError("it is a JCEKS store, which is not read", _FIX_CONVERT)
    if data.lstrip().startswith(b"-----BEGIN"):
        raise ConfigError("it is a file in PEM", _FIX_TYPE)
    if not data.startswith(bytes([SEQUENCE])):
        raise ValueError("it is neither JKS nor PKCS12")
    return _of_pkcs12(data, password)


def _of_jks(data: bytes, password: str, key_password: str | None) -> JavaStore:
    entries = jks.entries_of(data, password)
    trusted = [each.chain[0] for each in entries if each.key is None]
    for entry in entries:
        if entry.key is not None and key_password is not None:
            key = jks.unprotected(entry.key, key_password or password)
            return JavaStore(_pem("PRIVATE KEY", [key]), _certificates(entry.chain),
                             _certificates(trusted))  # fmt: skip
    return JavaStore(b"", b"", _certificates(trusted))


def _of_pkcs12(data: bytes, password: str) -> JavaStore:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
        )
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError as error:
        raise ConfigError(
            f"it is a PKCS12 store, which needs the extra [{EXTRA}]: {error}", _FIX_EXTRA
        ) from None
    try:
        found = load_pkcs12(data, password.encode() or None)
    except UnsupportedAlgorithm:
        raise ConfigError("it is encrypted in an old way that is not read", _FIX_CONVERT) from None
    except ValueError:
        raise ValueError("its password is another, or it is no PKCS12 store") from None
    others = [each.certificate.public_bytes(Encoding.DER) for each in found.additional_certs]
    if found.key is None or found.cert is None:
        own = [] if found.cert is None else [found.cert.certificate.public_bytes(Encoding.DER)]
        return JavaStore(b"", b"", _certificates([*own, *others]))
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = _chain(found.cert.certificate.public_bytes(Encoding.DER), others)
    rest = [each for each in others if each not in chain]
    return JavaStore(key, _certificates(chain), _certificates(rest))


def _chain(first: bytes, others: list[bytes]) -> list[bytes]:
    """The certificate and then its issuers, as far as they are there: a PKCS12 store has them in
    any order."""
    by_subject = {_names(each)[1]: each for each in reversed(others)}
    chain = [first]
    while len(chain) <= len(others):
        issuer, subject = _names(chain[-1])
        following = by_subject.get(issuer)
        if issuer == subject or following is None or following in chain:
            break
        chain.append(following)
    return chain


def _names(certificate: bytes) -> tuple[bytes, bytes]:
    """Issuer and subject, in DER."""
    to_be_signed, *_ = values_of(only_value(certificate, SEQUENCE))
    fields: list[Value] = list(values_of(to_be_signed.content))
    at = 1 if fields and fields[0].tag == 0xA0 else 0  # the version
    if len(fields) < at + 5:
        raise ValueError("a certificate in it does not parse")
    return fields[at + 2].whole, fields[at + 4].whole


def _certificates(found: list[bytes] | tuple[bytes, ...]) -> bytes:
    return _pem("CERTIFICATE", found)


def _pem(label: str, blocks: list[bytes] | tuple[bytes, ...]) -> bytes:
    lines: list[str] = []
    for block in blocks:
        text = base64.b64encode(block).decode("ascii")
        lines.append(f"-----BEGIN {label}-----")
        lines += [text[at : at + _LINE_CHARS] for at in range(0, len(text), _LINE_CHARS)]
        lines.append(f"-----END {label}-----")
    return "".join(f"{line}\n" for line in lines).encode("ascii")
