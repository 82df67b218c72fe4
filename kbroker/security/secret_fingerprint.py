"""Fingerprints of secrets: brokers whose secrets differ find that out, and learn no secret.

Place in the flow: a broker registers with the fingerprints of secrets that all should share, where
every client of the metadata store may read them (`server/advertised.py`). A broker that starts
compares them with its own (`cluster/agreed_settings.py`).

Made so that it is of no use to find the secret: scrypt (RFC 7914) makes each guess cost 16 MB and
some 40 ms, the salt has the cluster's id and the setting's name, and of the result 20 bits are
left, which a million other texts of a dictionary share. So two secrets that differ look alike once
in a million times.
"""

from __future__ import annotations

from typing import Final

_COST, _BLOCK_SIZE, _PARALLEL = 1 << 14, 8, 1
_MEMORY_BYTES_MAX: Final = 32 << 20
_BITS: Final = 20
_BYTES: Final = 3


def fingerprint(secret: str, setting: str, cluster_id: str) -> str:
    """A word and five hexadecimal digits; nothing where Python's libcrypto has no scrypt. Any
    thread; takes 40 ms, without the GIL."""
    try:
        from hashlib import scrypt  # its libcrypto is not for a broker without secrets
    except ImportError:
        return ""
    # Python decodes the environment so, where it is not UTF-8.
    data = secret.encode(errors="surrogateescape")
    salt = f"kbroker {setting} {cluster_id}".encode()
    try:
        made = scrypt(
            data, salt=salt, n=_COST, r=_BLOCK_SIZE, p=_PARALLEL, maxmem=_MEMORY_BYTES_MAX,
            dklen=_BYTES,
        )  # fmt: skip
    except ValueError:  # forbidden there, as by FIPS
        return ""
    return f"fingerprint {int.from_bytes(made, 'big') >> (8 * _BYTES - _BITS):05x}"
