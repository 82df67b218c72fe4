"""A group and its members as they are written to `__consumer_offsets` and read back.

Immutable; what the state machine hands to the store, and what a load hands to the state machine.
"""

from __future__ import annotations

from typing import NamedTuple

NO_GENERATION = -1


class MemberImage(NamedTuple):
    """A member with the assignment that its leader gave it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # the chosen protocol's metadata, as the client sent it
    assignment: bytes
    # All that the member supports, with their metadata; () where that is not known: the record has
    # the chosen one alone.
    protocols: tuple[tuple[str, bytes], ...] = ()


class GroupImage(NamedTuple):
    """A group after a rebalance, or when its last member has gone (`members` is empty)."""

    group_id: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int  # wall clock; when the group came into this state
    members: tuple[MemberImage, ...]
