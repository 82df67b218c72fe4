"""The bytes of metadata nodes: what is written reads back, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import DataDirectoryError
from kbroker.metadata.controller import records
from kbroker.metadata.controller.decisions import first_partition_state
from kbroker.metadata.controller.records import PartitionRecord, TombstoneRecord, TopicRecord
from kbroker.metadata.image import NO_ENVELOPE, BrokerEndpoint, BrokerImage, new_uuid
from kbroker.types import parse_uuid, uuid_text

TOPIC_ID = parse_uuid("4L6g3nShT-eMCtK--X86sw")

# path, decoder: everything that reads a node
DECODERS = [
    (records.broker_path(7), records.decode_broker),
    (records.used_directories_path(7), records.decode_used_directories),
    (records.losses_path(7), records.decode_losses),
    (records.topic_path("t"), records.decode_topic),
    (records.partition_state_path("t", 0), records.decode_partition),
    (records.topic_config_path("t"), records.decode_configs),
    (records.tombstone_path(TOPIC_ID), records.decode_tombstone),
    (records.CONTROLLER, records.decode_controller),
    (records.PRODUCER_ID_BLOCK, records.decode_producer_id_block),
    (records.CLUSTER_ID, records.decode_cluster_id),
]

BROKER = BrokerImage(
    7,
    "h",
    9092,
    endpoints=(BrokerEndpoint("INSIDE", "h", 9092), BrokerEndpoint("OUT", "::1", 9093, "SSL")),
)
# Nodes as they are written, kept byte for byte: as Apache Kafka 3.9 has them where it had them.
WRITTEN = [
    (
        records.encode_broker(BROKER, 5),
        b'{"version":5,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5",'
        b'"endpoints":["INSIDE://h:9092","OUT://[::1]:9093"],"rack":null,'
        b'"listener_security_protocol_map":{"INSIDE":"PLAINTEXT","OUT":"SSL"},"features":{},'
        b'"locks":[]}',
        BROKER,
    ),
    (
        records.encode_used_directories({"JwQ": "/data"}),
        b'{"version":1,"directories":{"JwQ":"/data"}}',
        {"JwQ": "/data"},
    ),
    (records.encode_losses(8), b'{"version":1,"broker_epoch":8}', (7, 8)),
    (
        records.encode_topic(TOPIC_ID, [(1, 2), (2, 0)]),
        b'{"version":3,"topic_id":"4L6g3nShT-eMCtK--X86sw","partitions":{"0":[1,2],"1":[2,0]},'
        b'"adding_replicas":{},"removing_replicas":{}}',
        TopicRecord(TOPIC_ID, ((1, 2), (2, 0))),
    ),
    (
        records.encode_partition(first_partition_state("t", 0, (3, 1)), 9),
        b'{"version":1,"leader":3,"leader_epoch":0,"controller_epoch":9,"isr":[3,1]}',
        PartitionRecord(3, 0, (3, 1), ()),
    ),
    (
        records.encode_configs({"k": "é"}),
        b'{"version":1,"config":{"k":"\\u00e9"}}',
        {"k": "é"},
    ),
    (
        records.encode_tombstone("t", 3),
        b'{"version":1,"name":"t","partitions":3}',
        TombstoneRecord("t", 3),
    ),
    (
        records.encode_controller(4, 6),
        b'{"version":2,"brokerid":4,"timestamp":"6","kraftControllerEpoch":-1}',
        4,
    ),
    (
        records.encode_producer_id_block(4, 1000, 500),
        b'{"version":1,"broker":4,"block_start":"1000","block_end":"1499"}',
        1500,
    ),
    (records.encode_cluster_id("c"), b'{"version":"1","id":"c"}', "c"),
]


@pytest.mark.parametrize(
    ("path", "decode", "written", "kept", "value"),
    [(*decoder, *written) for decoder, written in zip(DECODERS, WRITTEN, strict=True)],
)
def test_written_records_read_back(
    path: str, decode: Any, written: bytes, kept: bytes, value: object
) -> None:
    assert written == kept
    assert decode(path, kept) == value
    unknown = json.dumps({**json.loads(kept), "later": [1]}).encode()
    assert decode(path, unknown) == value  # a field more is no reason to refuse


def test_eligible_replicas_of_a_partition_read_back() -> None:
    state = replace(first_partition_state("t", 0, (3, 1)), isr=(3,), eligible=(1,), min_in_sync=2)
    data = records.encode_partition(state, 9)
    assert data == (
        b'{"version":1,"leader":3,"leader_epoch":0,"controller_epoch":9,"isr":[3],"eligible":[1],'
        b'"min_in_sync":2}'
    )
    assert records.decode_partition("", data) == PartitionRecord(3, 0, (3,), (1,), 2)
    damaged = data.replace(b":2}", b":-1}")
    with pytest.raises(DataDirectoryError, match="min_in_sync"):
        records.decode_partition("/state", damaged)


def test_the_last_leader_of_a_partition_without_one_reads_back() -> None:
    state = replace(first_partition_state("t", 0, (3, 1)), leader=-1, isr=(1,), last_leader=3)
    data = records.encode_partition(state, 9)
    assert data == (
        b'{"version":1,"leader":-1,"leader_epoch":0,"controller_epoch":9,"isr":[1],"last_leader":3}'
    )
    assert records.decode_partition("", data) == PartitionRecord(-1, 0, (1,), (), 0, 3)
    damaged = data.replace(b":3}", b":-1}")
    with pytest.raises(DataDirectoryError, match="last_leader"):
        records.decode_partition("/state", damaged)


@pytest.mark.parametrize(("path", "decode"), DECODERS)
@given(data=st.data())
def test_any_other_bytes_are_refused_with_the_path(path: str, decode: Any, data: Any) -> None:
    (kept,) = (
        kept for (known, _), (_, kept, _) in zip(DECODERS, WRITTEN, strict=True) if known == path
    )
    fields = json.loads(kept)
    junk: st.SearchStrategy[Any] = (
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    )
    junk |= st.lists(junk | st.lists(junk, max_size=3), max_size=3)
    name = data.draw(st.sampled_from(sorted(fields)))
    mutated = data.draw(
        st.binary(max_size=40)
        | st.just(json.dumps({k: v for k, v in fields.items() if k != name}).encode())
        | junk.map(lambda value: json.dumps({**fields, name: value}).encode())
        | st.integers(0, len(kept) - 1).map(lambda end: kept[:end])
    )
    try:
        decode(path, mutated)
    except DataDirectoryError as error:
        assert path in error.message
        assert "\n" not in error.message


def test_deep_nesting_is_refused_not_a_crash() -> None:
    with pytest.raises(DataDirectoryError):
        records.decode_configs("/config/topics/t", b'{"version":1,"config":' + b"[" * 100_000)


def test_a_lossy_start_is_a_field_more() -> None:
    path, broker = records.broker_path(7), BrokerImage(7, "h", lossy=True)
    plain = records.encode_broker(replace(broker, lossy=False), 5, ("d",))
    data = records.encode_broker(broker, 5, ("d",))
    assert data == plain[:-1] + b',"lossy":true}'
    assert records.decode_broker(path, data) == broker
    with pytest.raises(DataDirectoryError, match="lossy is no bool"):
        records.decode_broker(path, data.replace(b"true", b"1"))


def test_the_version_of_envelope_is_a_field_more() -> None:
    path, broker = records.broker_path(7), BrokerImage(7, "h", envelope_version=0)
    plain = records.encode_broker(BrokerImage(7, "h"), 5, ("d",))
    assert records.decode_broker(path, plain).envelope_version == NO_ENVELOPE
    data = records.encode_broker(broker, 5, ("d",))
    assert data == plain[:-1] + b',"envelope_version":0}'
    assert records.decode_broker(path, data) == broker
    for damaged in (b"-1", b"32768", b"true", b'"0"'):
        with pytest.raises(DataDirectoryError, match="envelope_version"):
            records.decode_broker(path, data[:-2] + damaged + b"}")


@pytest.mark.parametrize("name", ["", "x", "-1", "01", "1 ", "٣", "9" * 30])
def test_a_broker_node_that_is_no_number_is_refused(name: str) -> None:
    with pytest.raises(DataDirectoryError):
        records.decode_broker(f"/brokers/ids/{name}", records.encode_broker(BrokerImage(1), 0))


def test_the_controllers_epoch_is_a_bare_number() -> None:
    path = records.CONTROLLER_EPOCH
    assert records.encode_controller_epoch(8) == b"8"
    assert records.decode_controller_epoch(path, b"8") == 8
    for data in (b"", b"x", b"-1", b"1.5", b"\xd9\xa3", b"2147483647", b"9" * 5000):
        with pytest.raises(DataDirectoryError, match=path):
            records.decode_controller_epoch(path, data)


def test_a_tombstones_name_is_the_topics_id() -> None:
    topic_id = new_uuid()
    assert records.tombstone_path(topic_id).endswith(uuid_text(topic_id))
    assert records.decode_tombstone_id(records.tombstone_path(topic_id)) == topic_id
    with pytest.raises(DataDirectoryError):
        records.decode_tombstone_id("/topics/deleted/nonsense")
