"""The groups of a cluster, and which coordinators gave no answer.

Each broker is asked once: the page has the groups of those that answer, and is made again in some
seconds. Owner: the console's thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import KafkaError
from kbroker.peer import group_messages as messages
from kbroker.peer.groups import Listed
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.peer.client import Client


class Listing(NamedTuple):
    """`silent`: brokers that gave no list, and why not."""

    groups: Sequence[Listed]
    silent: Sequence[tuple[int, KafkaError]]


def list_groups(client: Client) -> Listing:
    """By name. KafkaError: a broker refuses for good. UserError: none can be reached."""
    groups: list[Listed] = []
    silent: list[tuple[int, KafkaError]] = []
    answers = client.cluster.everywhere(
        ApiKey.LIST_GROUPS,
        messages.encode_list_groups,
        messages.decode_list_groups,
        of_all=False,
    )
    for node_id, answer in answers.items():
        if isinstance(answer, KafkaError):
            silent.append((node_id, answer))
        else:
            groups += [Listed(node_id, each) for each in answer]
    return Listing(sorted(groups, key=lambda each: each.group.group), silent)
