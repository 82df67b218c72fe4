"""The answer to a request that fails as a whole, made from the tables.

Apache Kafka answers such a request in the shape of its response: the code at the top where the
response has one, else at each item that the request names. A response's table says which of its
arrays has an item for each item of the request (`array(..., each="topics")`); an item takes the
fields without a default that both have: names and indexes. What a request names twice is answered
once.
"""

from __future__ import annotations

from typing import Any, TypeVar

from kbroker.errors import ErrorCode
from kbroker.protocol.messages.table import Field, Message, Record

M = TypeVar("M", bound=Record)

_CODE, _MESSAGE = "error_code", "error_message"


def failed(response: type[M], request: Message, code: ErrorCode, message: str | None = None) -> M:
    """The response that says `code` wherever it can, for all that the request names."""
    return _filled(response, request, code, message)


def _filled(response: type[M], source: Any, code: ErrorCode, message: str | None) -> M:
    values: dict[str, Any] = {}
    for name, field in response.fields.items():
        if name == _CODE:
            values[name] = int(code)
        elif name == _MESSAGE:
            values[name] = message
        elif field.each and field.record is not None:
            asked = [item for each in field.each for item in getattr(source, each) or ()]
            values[name] = _items(field.record, asked, code, message)
        elif not isinstance(source, Record):
            if not values:  # an item that is a plain name: the first field takes it
                values[name] = source
        elif name in type(source).fields and _alike(field, type(source).fields[name]):
            values[name] = getattr(source, name)
    return response(**values)


def _alike(one: Field, other: Field) -> bool:
    if one.has_default or one.is_array or other.is_array:
        return False
    return one.kind == other.kind and one.record is None


def _items(
    record: type[Record], asked: list[Any], code: ErrorCode, message: str | None
) -> list[Record]:
    items: dict[str, Record] = {}
    for source in asked:
        item = _filled(record, source, code, message)
        items.setdefault(repr(item), item)
    return list(items.values())
