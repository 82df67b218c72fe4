"""What requests about offsets do to a share group: changes of the topics that have a state.

    alter    initializing -> the share coordinator has the new start -> initialized
    delete   deleting     -> the share coordinator has no state      -> in none of them

The first change is in the log before the share coordinator is asked, so that a group never takes a
share-partition for initialized whose state is gone, also where a coordinator ends half way: what is
initializing or deleting begins again with the next heartbeat. Pure but for the draft, as
`decisions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from kbroker.coordinator.consumer_group.messages import Refused
from kbroker.coordinator.share.images import SharePartition
from kbroker.coordinator.share_group.images import (
    ByTopic,
    Kind,
    StateTopics,
    fewer,
    more,
)
from kbroker.errors import ErrorCode

if TYPE_CHECKING:
    from kbroker.coordinator.share_group.state import Draft, ShareGroupState


def check_empty(state: ShareGroupState) -> None:
    if state.members:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def check_exists(state: ShareGroupState, group_id: str) -> None:
    if not state.exists:
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def alteration_begins(draft: Draft, topics: ByTopic) -> None:
    """These get another start; a group that is not there is made by that."""
    kept = draft.state.state_topics
    initializing, deleting = kept.initializing, dict(kept.deleting)
    for topic_id, some in topics.items():
        initializing = more(initializing, topic_id, some.name, some.partitions)
        deleting.pop(topic_id, None)
    _put(draft, StateTopics(initializing, kept.initialized, deleting))


def alteration_ends(
    draft: Draft, good: Iterable[SharePartition], bad: Iterable[SharePartition]
) -> None:
    """The share coordinator has a new start of these, and not of those. A share-partition that was
    initialized before stays so."""
    kept = draft.state.state_topics
    initializing, initialized = kept.initializing, kept.initialized
    for topic_id, some in _by_topic(good).items():
        waiting = initializing.get(topic_id)
        begun = frozenset() if waiting is None else waiting.partitions & some
        if waiting is not None and begun:
            initialized = more(initialized, topic_id, waiting.name, begun)
            initializing = fewer(initializing, topic_id, begun)
    for topic_id, some in _by_topic(bad).items():
        initializing = fewer(initializing, topic_id, some)
    _put(draft, StateTopics(initializing, initialized, kept.deleting))


def deletion_begins(draft: Draft, topics: ByTopic) -> dict[UUID, frozenset[int]]:
    """The share-partitions whose state is to be deleted, by topic; `topics` has all partitions of
    those that the client names. A topic that has no state is not among them."""
    kept = draft.state.state_topics
    initializing, initialized, deleting = kept.initializing, kept.initialized, dict(kept.deleting)
    found: dict[UUID, frozenset[int]] = {}
    for topic_id, every in topics.items():
        if topic_id in initialized:
            found[topic_id] = _with_state(kept, topic_id)
        elif topic_id in deleting:
            # An earlier deletion has failed: which states it has left is not known.
            found[topic_id] = every.partitions
        else:
            continue
        initializing, initialized = fewer(initializing, topic_id), fewer(initialized, topic_id)
        deleting[topic_id] = every.name
    _put(draft, StateTopics(initializing, initialized, deleting))
    return found


def deletion_ends(draft: Draft, topic_ids: Iterable[UUID]) -> None:
    """These have no state any more, unless they are to have one again."""
    kept = draft.state.state_topics
    gone = frozenset(topic_ids)
    _put(draft, kept._replace(deleting={i: n for i, n in kept.deleting.items() if i not in gone}))


def _by_topic(keys: Iterable[SharePartition]) -> dict[UUID, frozenset[int]]:
    found: dict[UUID, set[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, set()).add(key.partition)
    return {topic_id: frozenset(some) for topic_id, some in found.items()}


def _with_state(kept: StateTopics, topic_id: UUID) -> frozenset[int]:
    """The partitions that have a state, or may have one soon."""
    some = [part[topic_id].partitions for part in kept[:2] if topic_id in part]
    return frozenset[int]().union(*some)


def _put(draft: Draft, kept: StateTopics) -> None:
    if kept != draft.state.state_topics:
        draft.put(Kind.STATE_TOPICS, "", kept)
