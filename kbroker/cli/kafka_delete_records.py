"""`kbroker kafka-delete-records`: with the options and output of kafka-delete-records.sh."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kbroker.cli.kafka_tool import (
    KafkaTool,
    connected,
    exception_of,
    fail,
    option,
    refuse,
)
from kbroker.cli.output import say_to_programs
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.types import TopicPartition

_VERSION: Final = 1
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_REQUIRED: Final = ("bootstrap-server", "offset-json-file")
# Fields of a partition, each with its class in Java and the number of its bits.
_FIELDS: Final[Mapping[str, tuple[str, int]]] = {
    "topic": ("String", 0),
    "partition": ("Integer", 32),
    "offset": ("Long", 64),
}


def _run(**options: Any) -> None:
    for name in _REQUIRED:
        if options[name.replace("-", "_")] is None:
            refuse(f'Missing required argument "[{name}]"')
    offsets = _offsets(options["offset_json_file"])
    with connected(options["bootstrap_server"], options["command_config"]) as client:
        say_to_programs("Executing records delete operation")
        results = _delete(client, offsets)
    say_to_programs("Records delete operation completed:")
    for where in offsets:  # the order of the original's lines differs from run to run
        say_to_programs(f"partition: {where}\t{results[where]}")


def _delete(client: Client, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
    """The end of the line of each partition."""
    results: dict[TopicPartition, str] = {}
    topics = client.metadata(sorted({where.topic for where in offsets})).topics if offsets else {}
    for where in offsets:
        topic = topics.get(where.topic)
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        if topic is not None and error is ErrorCode.NONE:
            leaders = {each.index: each.leader for each in topic.partitions}
            if where.partition not in leaders:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif leaders[where.partition] < 0:
                error = ErrorCode.LEADER_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            results[where] = f"error: {exception_of(error, _words(where, error))}"
    asked = {where: offset for where, offset in offsets.items() if where not in results}
    for where, result in client.delete_records(asked).items():
        if result.error is ErrorCode.NONE:
            results[where] = f"low_watermark: {result.low_watermark}"
        else:
            results[where] = f"error: {exception_of(result.error)}"
    return results


def _words(where: TopicPartition, error: ErrorCode) -> str:
    if error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return ""
    return f"Failed to fetch metadata for partition {where} due to topic authorization failure"


# --- the file -------------------------------------------------------------------------------------


def _offsets(name: str) -> dict[TopicPartition, int]:
    from kbroker.types import TopicPartition

    try:
        with open(name, encoding="utf-8") as file:
            text = file.read(_FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError):
        fail(f"Unable to read file {name}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        fail("The input string is not a valid JSON")
    if not isinstance(document, dict):
        fail(f"Expected JSON object, received {_compact(document)}")
    version = document.get("version", _VERSION)
    if not _is_whole(version, 32):
        fail(f"Expected `Integer` value, received {_compact(version)}")
    if version != _VERSION:
        fail(f"Not supported version field value {version}")
    if "partitions" not in document:
        fail("Missing partitions field")
    if not isinstance(document["partitions"], list):
        fail(f"Expected JSON array, received {_compact(document['partitions'])}")
    offsets: dict[TopicPartition, int] = {}
    twice: dict[TopicPartition, None] = {}
    for each in document["partitions"]:
        if not isinstance(each, dict):
            fail(f"Expected JSON object, received {_compact(each)}")
        topic, partition, offset = (_field(each, field) for field in _FIELDS)
        where = TopicPartition(topic, partition)
        if where in offsets:
            twice[where] = None
        offsets[where] = offset
    if twice:
        fail("Offset json file contains duplicate topic partitions: " + ",".join(map(str, twice)))
    return offsets


def _field(document: Mapping[str, Any], name: str) -> Any:
    if name not in document:
        fail(f"No such field exists: `{name}`")
    value, (kind, bits) = document[name], _FIELDS[name]
    if not (_is_whole(value, bits) if bits else isinstance(value, str)):
        fail(f"Expected `{kind}` value, received {_compact(value)}")
    return value


def _is_whole(value: object, bits: int) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


command: Final = KafkaTool(
    "kafka-delete-records",
    callback=_run,
    help="Delete the first records of partitions, with the options of kafka-delete-records.sh.",
    params=[
        option("bootstrap-server", "HOST:PORT,...", "Brokers to ask first."),
        option("command-config", "FILE", "How to authenticate."),
        option(
            "offset-json-file", "FILE",
            'As {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}.',
        ),
    ],
)  # fmt: skip
