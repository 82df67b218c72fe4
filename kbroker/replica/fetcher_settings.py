"""What the configuration says of replica fetchers, and the links that it describes.

Values, read once: none of these keys but `num.replica.fetchers` changes while a broker runs. Any
thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.peer.connection import NetworkClientOptions
from kbroker.peer.leader_link import LeaderLink
from kbroker.peer.own_login import own_login
from kbroker.peer.replica_fetch import FetchLimits

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.peer.address import Address
    from kbroker.protocol.wire import Reader
    from kbroker.types import ApiKey

# An answer's bytes beside records, for more partitions than a broker will follow of one other.
_ANSWER_BYTES: Final = 16 * 1024 * 1024


class FetcherSettings(NamedTuple):
    limits: FetchLimits
    backoff_ms: int
    fetchers_per_source: int = 1


class Link(Protocol):
    """A way to a source: one request at a time, KafkaError where no answer came."""

    def call(self, api_key: ApiKey, version: int, body: bytes) -> Awaitable[Reader]: ...
    async def close(self) -> None: ...


def fetcher_settings(config: BrokerConfig) -> FetcherSettings:
    limits = FetchLimits(
        max_wait_ms=config["replica.fetch.wait.max.ms"],
        min_bytes=config["replica.fetch.min.bytes"],
        max_bytes=config["replica.fetch.response.max.bytes"],
        partition_max_bytes=config["replica.fetch.max.bytes"],
    )
    return FetcherSettings(
        limits, config["replica.fetch.backoff.ms"], config["num.replica.fetchers"]
    )


def leader_links(config: BrokerConfig, client_id: str) -> Callable[[Address], Link]:
    """What `FetcherManager` connects with. A first batch comes whole, however large."""
    largest = max(config["replica.fetch.response.max.bytes"], config["socket.request.max.bytes"])
    options = NetworkClientOptions(
        client_id=client_id,
        in_flight_max=1,
        request_timeout_ms=config["replica.socket.timeout.ms"],
        response_bytes_max=largest + _ANSWER_BYTES,
        login=own_login(config),
    )
    return lambda address: LeaderLink(address, options)
