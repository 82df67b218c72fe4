"""ApiVersions (18): what this broker speaks; the first request of nearly every connection.

The answer depends on the version alone, so the five bodies are made once, from the registry's rows,
and sent as they are. Two rules make this API unlike the others (KIP-511): a version we do not know
is answered in the v0 shape with UNSUPPORTED_VERSION and the range we do know, unparsed, so that the
client tries again on the same connection; and since v3 a client names its software, which must look
like a name (it ends up in metrics), else INVALID_REQUEST.

Features: none are listed. A feature's level is a promise about the cluster's own records, which are
not Kafka's here, and every client reads an absent feature as level 0: Java producers use the older
transaction protocol, consumers decide by the API keys. An unknown epoch (-1) says that there is
nothing to compare.

Any handler thread; holds no lock; does not import the schema library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode
from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import Request, Services

Listed = tuple[int, int, int]

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
_SINCE_THROTTLE_TIME: Final = 1
_SINCE_SOFTWARE: Final = 3


class ApiVersions:
    """The answers for one list of (key, lowest, highest version)."""

    __slots__ = ("_bodies", "unsupported_version")

    def __init__(self, listed: Iterable[Listed]) -> None:
        rows = sorted(listed)
        own = SERVED[ApiKey.API_VERSIONS]
        self._bodies = [
            encode(version, ErrorCode.NONE, rows) for version in range(own.min, own.max + 1)
        ]
        self.unsupported_version = encode(
            0, ErrorCode.UNSUPPORTED_VERSION, [(ApiKey.API_VERSIONS, own.min, own.max)]
        )

    def handle(self, services: Services, request: Request) -> None:
        version = request.api_version
        if version >= _SINCE_SOFTWARE:
            reader = Reader(request.body, flexible=True)
            name, software_version = reader.string(), reader.string()
            reader.tags()
            if _SOFTWARE.fullmatch(name) is None or _SOFTWARE.fullmatch(software_version) is None:
                request.respond(self.failure(request, ErrorCode.INVALID_REQUEST, ""))
                return
        request.respond(self._bodies[version])

    def failure(self, request: Request, code: ErrorCode, message: str) -> bytes:
        return encode(request.api_version, code, [])


def encode(version: int, code: ErrorCode, rows: Iterable[Listed]) -> bytes:
    rows = list(rows)
    out = Writer(flexible=is_flexible(ApiKey.API_VERSIONS, version))
    out.int16(code)
    out.array(len(rows))
    for key, lowest, highest in rows:
        out.int16(key)
        out.int16(lowest)
        out.int16(highest)
        out.tags()
    if version >= _SINCE_THROTTLE_TIME:
        out.int32(0)
    out.tags()
    return out.getvalue()
