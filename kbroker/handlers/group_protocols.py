"""Which protocols of groups this broker serves beside the classic one.

One is served where the feature that belongs to it is finalised, for the whole cluster, and
`group.coordinator.rebalance.protocols` names it; share groups need not be named. Else ApiVersions
does not list its APIs, so that clients choose the classic protocol, and a request of one is
answered with UNSUPPORTED_VERSION, as Apache Kafka 4.3 answers it, before its rights are looked at.

Any handler thread; holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.metadata.features import GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.errors import ErrorCode
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.consumer_group_describe import Request, Response

PROTOCOLS_KEY: Final = "group.coordinator.rebalance.protocols"


class GroupProtocol(NamedTuple):
    """`name` is the one in the settings, None where they need not name it; `level` the lowest of
    the feature that has it."""

    name: str | None
    feature: str
    level: int


CONSUMER: Final = GroupProtocol("consumer", GROUP_VERSION, 1)
# As in Apache Kafka, the level alone decides.
SHARE: Final = GroupProtocol(None, SHARE_VERSION, 1)
STREAMS: Final = GroupProtocol("streams", STREAMS_VERSION, 1)


def is_served(services: Services, protocol: GroupProtocol) -> bool:
    level = services.controller.image.features.level(protocol.feature)
    is_named = protocol.name is None or protocol.name in services.config[PROTOCOLS_KEY]
    return level >= protocol.level and is_named


def describe_failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    """ConsumerGroupDescribe: each group that was named, once."""
    table = messages.consumer_group_describe
    return table.Response(
        groups=[
            table.DescribedGroup(error_code=code, error_message=message, group_id=group_id)
            for group_id in dict.fromkeys(call.message.group_ids)
        ]
    )
