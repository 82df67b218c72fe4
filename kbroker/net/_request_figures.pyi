"""Request times of all network threads together; see _request_figures.pyx."""

from typing import NamedTuple, Self

from typing_extensions import disjoint_base

from kbroker._net import SocketServer

# As keys of APIs: the fetches of either kind, where ApiKey.FETCH has them all.
FETCH_FOLLOWER: int
FETCH_CONSUMER: int

PARTS: tuple[str, ...]

class PartTimes(NamedTuple):
    quantiles_ms: tuple[float, ...]
    sum_ms: float

class ApiTimes(NamedTuple):
    api_key: int
    total: int
    # (version, requests) of those that were asked for
    versions: list[tuple[int, int]]
    # In the order of PARTS.
    parts: list[PartTimes]

@disjoint_base
class RequestFigures:
    def __new__(cls, server: SocketServer, quantiles: tuple[float, ...]) -> Self: ...
    # Older counts weigh `keep` of their weight.
    def tick(self, keep: float) -> None: ...
    def read(self) -> list[ApiTimes]: ...
    # Counts since the start by bucket: (upper bound in ms, requests), empty ones left out.
    def histogram(self, api_key: int, part: int) -> list[tuple[float, int]]: ...
