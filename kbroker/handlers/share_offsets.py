"""What requests about the offsets of a share group have in common: checks, and words of errors."""

from __future__ import annotations

from typing import Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.outside_text import can_be_told

UNKNOWN_TOPIC_WORDS: Final = "This server does not host this topic-partition."
DENIED_WORDS: Final = "The client is not authorized to access this topic."


def check_group(group_id: str) -> None:
    """KafkaError: no group has such an id."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if not can_be_told(group_id):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def words_of(code: ErrorCode, message: str | None) -> str:
    """An error of the whole request has words always, as in Apache Kafka."""
    return message or f"{code.name.replace('_', ' ').capitalize()}."
