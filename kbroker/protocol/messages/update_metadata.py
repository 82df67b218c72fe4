"""UpdateMetadata (6) in versions of kbroker's own: the controller sends its image to a broker.

Version 1003 has a part of the body of a request of version 1002. The broker's bytes and those of
the difference are in `metadata/controller/broker_messages.py`.
"""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    int16,
    int32,
    int64,
    rest,
    string,
)


class Request(Message, versions=(1002, 1003)):
    controller_id: int = int32(until=1002, default=-1)
    controller_epoch: int = int32()
    broker_epoch: int = int64()
    base: int = int64()
    version: int = int64()
    parts: int = int32(since=1003, default=0)
    number: int = int32(since=1003, default=0)
    data: bytes = rest()


class Name(Record, tags=False):
    topic: str = string()
    partition: int = int32()


class Response(Message, versions=(1002, 1003), flexible=1002):
    error_code: int = int16()
    offline: list[Name] = array(Name, default=())
    # A controller that does not know this field has no other broker lead them.
    refusing: list[Name] = array(Name, tag=0, default=())
