from collections.abc import Mapping, Sequence
from uuid import UUID

from kbroker.peer.replica_fetch import Asked, FetchAnswer, FetchLimits, FetchMetadata
from kbroker.protocol.wire import Reader

def encode_fetch(
    replica_id: int,
    broker_epoch: int,
    asked: Mapping[UUID, Sequence[Asked]],
    bounds: FetchLimits,
    metadata: FetchMetadata = ...,
    forgotten: Mapping[UUID, Sequence[int]] = ...,
) -> bytes:
    """The topics in the order of the mappings. `forgotten`: of the session, by their partitions."""

def decode_fetch(reader: Reader) -> FetchAnswer:
    """KafkaError: the leader refuses the request as a whole; ProtocolError: it is no answer."""
