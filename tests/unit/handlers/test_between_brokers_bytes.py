"""Messages between brokers keep their bytes, for the brokers of a cluster may be of two versions.

The vectors are random values with the bytes that the hand-written codecs of commit d2bed17b made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from kbroker.protocol import messages
from kbroker.protocol._messages import Kind
from kbroker.protocol.messages.table import Message, Record
from kbroker.protocol.wire import ProtocolError

VECTORS: Final = json.loads(
    (Path(__file__).parent / "between_brokers_vectors.json").read_text(encoding="utf-8")
)
FROM_TEXT: Final[dict[Kind, Any]] = {Kind.UUID: UUID, Kind.REST: bytes.fromhex}


def _as_it_is(value: Any) -> Any:
    return value


def record_of(kind: type[Record], fields: dict[str, Any]) -> Any:
    values: dict[str, Any] = {}
    for name, value in fields.items():
        field = kind.fields[name]
        if field.record is not None:
            values[name] = [record_of(field.record, each) for each in value]
        else:
            values[name] = FROM_TEXT.get(field.kind, _as_it_is)(value)
    return kind(**values)


def message_of(vector: dict[str, Any]) -> type[Message]:
    table, direction = vector["message"].split(".")
    message: type[Message] = getattr(getattr(messages, table), direction)
    return message


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["message"])
def test_a_record_has_the_bytes_that_the_version_before_wrote(vector: dict[str, Any]) -> None:
    message, version = message_of(vector), vector["version"]
    body = bytes.fromhex(vector["bytes"])
    record = record_of(message, vector["fields"])
    assert record.encode(version) == body
    assert message.decode(body, version) == record
    if "data" not in vector["fields"]:  # of any size
        with pytest.raises(ProtocolError):
            message.decode(body[:-1], version)
