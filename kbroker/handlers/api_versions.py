"""ApiVersions (18): what this broker speaks; the first request of nearly every connection.

The answer depends on the version, the finalized features and the protocols of groups that are
served (`group_protocols.py`) alone, so the five bodies are made once for them, from the registry's
rows, and sent as they are. APIs of a protocol that is not served are not listed. Two rules make
this API unlike the others (KIP-511): a version we do not know is answered in the v0 shape with
UNSUPPORTED_VERSION and the range we do know, unparsed, so that the client tries again on the same
connection; and since v3 a client names its software, which must look like a name (it ends up in
metrics), else INVALID_REQUEST.

Features (KIP-584): the table is `metadata/features.py`. The five of Apache Kafka 4.3 that a client
asks about are listed; of a feature that is not here level 0 is the only one, as Kafka says it.
metadata.version and kraft.version are left out: their levels are about the records of a Raft
quorum, and there is none. A feature at level 0 is not among the finalized. As in Kafka only version
4 names features that begin at 0: older clients take such a range for an error (KAFKA-17492). The
finalized features and their epoch are those of the published image.

Any handler thread; holds no lock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.handlers.group_protocols import GroupProtocol, is_served
from kbroker.metadata.features import FEATURES, UNSTABLE_KEY, FinalizedFeatures
from kbroker.protocol.versions import SERVED, is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


class Listed(NamedTuple):
    """An API's key, lowest and highest version, and the protocol of groups that it is of."""

    key: int
    lowest: int
    highest: int
    protocol: GroupProtocol | None = None


# An answer depends on these beside the version: the features, the protocols that are served, and
# whether levels that are in work are offered.
_Known = tuple[FinalizedFeatures, frozenset[GroupProtocol], bool]
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
_SINCE_THROTTLE_TIME: Final = 1
_SINCE_SOFTWARE: Final = 3
_SINCE_LEVEL_0: Final = 4  # of features
_SUPPORTED_FEATURES_TAG: Final = 0
_FINALIZED_FEATURES_EPOCH_TAG: Final = 1
_FINALIZED_FEATURES_TAG: Final = 2


class ApiVersions:
    """The answers for one list of (key, lowest, highest version)."""

    __slots__ = ("_bodies", "_protocols", "_rows", "unsupported_version")

    def __init__(self, listed: Iterable[Listed]) -> None:
        self._rows = sorted(listed, key=lambda row: row.key)
        self._protocols = {row.protocol for row in self._rows if row.protocol is not None}
        own = SERVED[ApiKey.API_VERSIONS]
        # Replaced as a whole by any thread: what they were made of, and one by version.
        self._bodies = self._made_of((FinalizedFeatures(), frozenset(), False))
        self.unsupported_version = encode(
            0, ErrorCode.UNSUPPORTED_VERSION, [Listed(ApiKey.API_VERSIONS, own.min, own.max)]
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
        served = frozenset(each for each in self._protocols if is_served(services, each))
        now = (services.controller.image.features, served, services.config[UNSTABLE_KEY])
        known, bodies = self._bodies
        if now != known:
            known, bodies = self._bodies = self._made_of(now)
        request.respond(bodies[version])

    def _made_of(self, known: _Known) -> tuple[_Known, list[bytes]]:
        features, served, unstable = known
        own = SERVED[ApiKey.API_VERSIONS]
        versions = range(own.min, own.max + 1)
        rows = [row for row in self._rows if row.protocol is None or row.protocol in served]
        bodies = [
            encode(version, ErrorCode.NONE, rows, features, unstable=unstable)
            for version in versions
        ]
        return known, bodies

    def failure(self, request: ColdRequest, code: ErrorCode, message: str) -> bytes:
        return encode(request.api_version, code, [])


def encode(
    version: int,
    code: ErrorCode,
    rows: Iterable[Listed],
    features: FinalizedFeatures = FinalizedFeatures(),  # noqa: B008  # it never changes
    *,
    unstable: bool = False,
) -> bytes:
    rows = list(rows)
    out = Writer(flexible=is_flexible(ApiKey.API_VERSIONS, version))
    out.int16(code)
    out.array(len(rows))
    for key, lowest, highest, _ in rows:
        out.int16(key)
        out.int16(lowest)
        out.int16(highest)
        out.tags()
    if version >= _SINCE_THROTTLE_TIME:
        out.int32(0)
    if version >= _SINCE_SOFTWARE and code is ErrorCode.NONE:
        out.tags(_features(version, features, unstable=unstable))
    else:
        out.tags()
    return out.getvalue()


def _features(version: int, finalized: FinalizedFeatures, *, unstable: bool) -> dict[int, bytes]:
    """The tagged fields of them, by tag."""
    epoch = Writer(flexible=True)
    epoch.int64(finalized.epoch)
    fields = {_FINALIZED_FEATURES_EPOCH_TAG: epoch.getvalue()}
    if version >= _SINCE_LEVEL_0:
        supported = [
            (each.name, each.lowest, each.highest_of(unstable=unstable)) for each in FEATURES
        ]
        fields[_SUPPORTED_FEATURES_TAG] = _levels(supported)
    if finalized.levels:
        levels = [(name, level, level) for name, level in finalized.levels.items()]
        fields[_FINALIZED_FEATURES_TAG] = _levels(levels)
    return fields


def _levels(rows: Collection[tuple[str, int, int]]) -> bytes:
    out = Writer(flexible=True)
    out.array(len(rows))
    for name, first, second in rows:
        out.string(name)
        out.int16(first)
        out.int16(second)
        out.tags()
    return out.getvalue()
