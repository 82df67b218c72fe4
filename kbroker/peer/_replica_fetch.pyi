from collections.abc import Iterable
from uuid import UUID

from kbroker.peer.replica_fetch import Asked, FetchAnswer, FetchLimits, FetchMetadata
from kbroker.protocol.wire import Reader

def encode_fetch(
    replica_id: int,
    broker_epoch: int,
    asked: Iterable[Asked],
    limits: FetchLimits,
    metadata: FetchMetadata = ...,
    forgotten: Iterable[tuple[UUID, int]] = ...,
) -> bytes:
    """Topics in the order in which they appear first. `forgotten`: partitions of the session."""

def decode_fetch(reader: Reader) -> FetchAnswer:
    """KafkaError: the leader refuses the request as a whole; ProtocolError: it is no answer."""
