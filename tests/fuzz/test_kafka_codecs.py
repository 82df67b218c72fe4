"""What no Java consumer gets past is not stored: what tests/fuzz/kafka_codecs.py has recorded."""

from __future__ import annotations

import zstandard

from kbroker.cli.machine_checks import ZSTD_EXACT
from kbroker.protocol._unpacking import zstd_version
from kbroker.protocol.record_batch import decode_batches
from kbroker.protocol.wire import ProtocolError
from tests.fuzz.kafka_codecs import RECORDED_OLD_ZSTD, batch_of, complaint, recorded
from tests.fuzz.packed import Frame
from tests.support.kafka_verdicts import digest_of


def test_a_java_consumer_reads_every_accepted_batch() -> None:
    """As recorded with Apache Kafka's classes; our verdict is that of now."""
    all_held = list(recorded())
    wrong = {held.frame: why for held in all_held if (why := complaint(held)) is not None}
    assert not wrong
    refused = [held for held in all_held if not held.consumed]
    assert len(refused) > 40 and len(all_held) > 100


def _read_by_a_newer_libzstd(each: Frame) -> int | None:
    """What a Java consumer's digest of it would be; None: it is refused."""
    unpacking = zstandard.ZstdDecompressor().decompressobj()
    try:
        raw = unpacking.decompress(each.payload)
        if not unpacking.eof:
            return None
        (batch,) = decode_batches(batch_of(each._replace(codec=0, payload=raw)))
    except (zstandard.ZstdError, ProtocolError):
        return None
    return digest_of(batch.records)


def test_libzstd_from_1_5_6_on_is_exact() -> None:
    """The system's, if it is one; and in any case the one inside the Python package."""
    all_held = list(recorded(RECORDED_OLD_ZSTD))
    assert len(all_held) > 20
    assert zstandard.ZSTD_VERSION >= (1, 5, 6)
    for held in all_held:
        expected = held.digest if held.consumed else None
        assert _read_by_a_newer_libzstd(held.frame) == expected
    differ = [held for held in all_held if complaint(held) is not None]
    assert bool(differ) == (0 < zstd_version() < ZSTD_EXACT)
