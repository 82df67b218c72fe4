"""ApiVersions (18): what this broker speaks; the first request of nearly every connection.

The answer depends on the version alone, so the five bodies are made once, from the registry's rows,
and sent as they are. Two rules make this API unlike the others (KIP-511): a version we do not know
is answered in the v0 shape with UNSUPPORTED_VERSION and the range we do know, unparsed, so that the
client tries again on the same connection; and since v3 a client names its software, which must look
like a name (it ends up in metrics), else INVALID_REQUEST.

Features (KIP-584): the five of Apache Kafka 4.3 that a client asks about are listed, each with
level 0 as the only one, which is Kafka's word for "not here": the classic group protocol alone, no
share or streams groups, no eligible leader replicas, none of the newer transaction protocols.
metadata.version and kraft.version are left out: their levels are about the records of a Raft
quorum, and there is none. What stands at level 0 is never among the finalized, so none are, since
epoch 0. As in Kafka only version 4 names features that begin at 0: older clients take such a range
for an error (KAFKA-17492).

Any handler thread; holds no lock.
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
    from kbroker.handlers.services import ColdRequest, Services

Listed = tuple[int, int, int]

# (name, lowest, highest level)
SUPPORTED_FEATURES: Final = (
    ("eligible.leader.replicas.version", 0, 0),
    ("group.version", 0, 0),
    ("share.version", 0, 0),
    ("streams.version", 0, 0),
    ("transaction.version", 0, 0),
)
FINALIZED_FEATURES_EPOCH: Final = 0

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
_SINCE_THROTTLE_TIME: Final = 1
_SINCE_SOFTWARE: Final = 3
_SINCE_LEVEL_0: Final = 4  # of features
_SUPPORTED_FEATURES_TAG: Final = 0
_FINALIZED_FEATURES_EPOCH_TAG: Final = 1


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

    def handle(self, services: Services, request: ColdRequest) -> None:
        version = request.api_version
        if version >= _SINCE_SOFTWARE:
            reader = Reader(request.body, flexible=True)
            name, software_version = reader.string(), reader.string()
            reader.tags()
            if _SOFTWARE.fullmatch(name) is None or _SOFTWARE.fullmatch(software_version) is None:
                request.respond(self.failure(request, ErrorCode.INVALID_REQUEST, ""))
                return
        request.respond(self._bodies[version])

    def failure(self, request: ColdRequest, code: ErrorCode, message: str) -> bytes:
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
    if version >= _SINCE_SOFTWARE and code is ErrorCode.NONE:
        out.tags(_features(version))
    else:
        out.tags()
    return out.getvalue()


def _features(version: int) -> dict[int, bytes]:
    """The tagged fields of them, by tag."""
    epoch = Writer(flexible=True)
    epoch.int64(FINALIZED_FEATURES_EPOCH)
    fields = {_FINALIZED_FEATURES_EPOCH_TAG: epoch.getvalue()}
    if version >= _SINCE_LEVEL_0:
        supported = Writer(flexible=True)
        supported.array(len(SUPPORTED_FEATURES))
        for name, lowest, highest in SUPPORTED_FEATURES:
            supported.string(name)
            supported.int16(lowest)
            supported.int16(highest)
            supported.tags()
        fields[_SUPPORTED_FEATURES_TAG] = supported.getvalue()
    return fields
