"""A topic's configuration in the terms of its log."""

from __future__ import annotations

import pytest

from kbroker.compression import Codec, Packing
from kbroker.config import BrokerConfig
from kbroker.config.topic import TopicConfig
from kbroker.log.engine.partition_log import Compaction
from kbroker.replica.manager import log_settings, stored_packing


def settings(replicas: int = 1, **overrides: str) -> dict[str, object]:
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    return log_settings(TopicConfig(BrokerConfig.load(), named), replicas)


def test_defaults_are_kafkas() -> None:
    assert settings() == {
        "segment_bytes": 1 << 30,
        "segment_ms": 7 * 86_400_000,
        "segment_jitter_ms": 0,
        "index_interval_bytes": 4096,
        "segment_index_bytes": 10 << 20,
        "max_message_bytes": 1_048_588,
        "min_insync_replicas": 1,
        "log_append_time": False,
        "stored_codec": -1,
        "compacted": False,
        "timestamp_before_max_ms": 2**63 - 1,
        "timestamp_after_max_ms": 3_600_000,
        "flush_messages": 2**63 - 1,
        "flush_ms": 2**63 - 1,
        "file_delete_delay_ms": 60_000,
        "retention_ms": 7 * 86_400_000,
        "retention_bytes": -1,
        "compaction": Compaction(0.5, 0, 2**63 - 1, 86_400_000),
    }


def test_words_become_flags() -> None:
    found = settings(
        message_timestamp_type="LogAppendTime",
        compression_type="lz4",
        cleanup_policy="compact,delete",
    )
    assert (found["log_append_time"], found["stored_codec"], found["compacted"]) == (True, 3, True)


@pytest.mark.parametrize(
    ("overrides", "packing"),
    [
        ({}, None),
        ({"compression_type": "uncompressed"}, (Codec.NONE, 0)),
        ({"compression_type": "gzip"}, (Codec.GZIP, -1)),
        ({"compression_type": "lz4"}, (Codec.LZ4, 9)),
        ({"compression_type": "zstd", "compression_gzip_level": "7"}, (Codec.ZSTD, 2)),
        ({"compression_type": "zstd", "compression_zstd_level": "19"}, (Codec.ZSTD, 19)),
        ({"compression_gzip_level": "7"}, None),
    ],
)
def test_level_of_the_codec(overrides: dict[str, str], packing: Packing | None) -> None:
    """The topic's own before the broker's, whose zstd level is 2 here."""
    broker = BrokerConfig.load(overrides=["compression.zstd.level=2"])
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    assert stored_packing(TopicConfig(broker, named)) == packing


@pytest.mark.parametrize(("wanted", "replicas", "counts"), [(2, 1, 1), (2, 3, 2), (1, 0, 1)])
def test_more_in_sync_replicas_than_there_are_cannot_be_asked_for(
    wanted: int, replicas: int, counts: int
) -> None:
    found = settings(replicas, min_insync_replicas=str(wanted))
    assert found["min_insync_replicas"] == counts
