"""A long stream of text through each client library, under every codec, byte for byte.

Records of some 1 KB of whole lines, so that 1 GB is a million records. By default as much of
KBROKER_BIG_BYTES's default as the slowest library moves in a few seconds; all of it when it is set.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator

import pytest

from tests.clients.adapters import CODECS, Client, Record
from tests.support import corpus
from tests.support.batches import Batch

pytestmark = [pytest.mark.client, pytest.mark.slow, pytest.mark.timeout(1800)]

BLOCK_BYTES = 1000
SHARE_OF_DEFAULT = 8


@pytest.mark.parametrize("codec", CODECS)
def test_a_big_stream(
    client: Client, codec: str, topic: str, batches_of: Callable[..., list[Batch]]
) -> None:
    size_bytes = corpus.big_bytes()
    if "KBROKER_BIG_BYTES" not in os.environ:
        size_bytes //= SHARE_OF_DEFAULT
    sent, received = hashlib.sha256(), hashlib.sha256()

    def records() -> Iterator[Record]:
        for block in corpus.blocks(size_bytes, BLOCK_BYTES):
            sent.update(block)
            yield Record(block)

    deliveries = client.produce(topic, records(), codec=codec, idempotent=True, batch_bytes=65_536)
    assert {delivery.error for delivery in deliveries} == {0}
    for number, record in enumerate(client.consume(topic, len(deliveries))):
        assert record.offset == number
        received.update(record.value or b"")
    assert received.hexdigest() == sent.hexdigest()
    assert {b.codec for b in batches_of(topic) if b.record_count >= corpus.RECORDS_THAT_PACK} == {
        codec
    }
