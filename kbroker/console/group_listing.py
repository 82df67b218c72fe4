"""The groups of a cluster, and which coordinators gave no answer.

Each broker is asked once: the page has the groups of those that answer, and is made again in some
seconds. Owner: the console's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.console.page import Notice, Tone
from kbroker.errors import KafkaError
from kbroker.findings.pieces import in_order, in_pieces
from kbroker.peer import group_messages as messages
from kbroker.peer.groups import Listed
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.findings.pieces import Pause
    from kbroker.peer.client import Client


# Of coordinators that gave no answer.
NOTICES_MAX: Final = 10


class Listing(NamedTuple):
    """`groups` in no order: a page sorts those that it needs. `silent`: brokers that gave no list,
    and why not."""

    groups: Sequence[Listed]
    silent: Sequence[tuple[int, KafkaError]]


def list_groups(client: Client, pause: Pause) -> Listing:
    """KafkaError: a broker refuses for good. UserError: none can be reached."""
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
            groups += [Listed(node_id, each) for each in in_pieces(answer, pause)]
    return Listing(groups, silent)


def by_name(groups: Iterable[Listed], pause: Pause) -> Iterator[Listed]:
    return in_order(groups, pause, lambda each: each.group.group)


def silent_notices(listing: Listing) -> Iterator[Notice]:
    for node_id, error in listing.silent[:NOTICES_MAX]:
        what = f"groups that broker {node_id} coordinates are left out: {error}"
        yield Notice(Tone.WARN, what, "see the page of brokers, and that broker's log")
    if len(listing.silent) > NOTICES_MAX:
        more = len(listing.silent) - NOTICES_MAX
        yield Notice(Tone.WARN, f"and those of {more} more brokers", "see the page of brokers")
