"""What no Java consumer gets past is not stored: what tests/fuzz/kafka_codecs.py has recorded."""

from __future__ import annotations

from tests.fuzz.kafka_codecs import complaint, recorded


def test_what_is_taken_a_java_consumer_reads() -> None:
    """As recorded with Apache Kafka's classes; our verdict is that of now."""
    all_held = list(recorded())
    wrong = {held.frame: why for held in all_held if (why := complaint(held)) is not None}
    assert not wrong
    refused = [held for held in all_held if not held.consumed]
    assert len(refused) > 40 and len(all_held) > 100
