"""The machine's libcrypto by `ctypes`, for its few uses outside of TLS.

Place in the flow: keys that are made (`private_keys.py`) and passwords that are stored
(`sealed_text.py`). It comes with the libssl without which no listener speaks TLS, and is opened
when the first of them asks for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

from kbroker.errors import ConfigError

POINTER: Final = ctypes.c_void_p
INT: Final = ctypes.c_int
BYTES: Final = ctypes.c_char_p

_NAMES: Final = ("libcrypto.so.4", "libcrypto.so.3")
# Of each function: its result and its arguments.
Functions = Mapping[str, tuple[Any, list[Any]]]


def library(functions: Functions, purpose: str) -> ctypes.CDLL:
    """The library with these functions. ConfigError: the machine has none; `purpose` is the use
    that the caller has for it, as "makes keys"."""
    for name in _NAMES:
        try:
            found = ctypes.CDLL(name)
            for function, (result, arguments) in functions.items():
                bound = getattr(found, function)
                bound.restype, bound.argtypes = result, arguments
        except (OSError, AttributeError):
            continue
        return found
    raise ConfigError(
        f"this machine has no libcrypto of OpenSSL 3, which {purpose}",
        "install OpenSSL 3 (Debian: libssl3)",
    )
