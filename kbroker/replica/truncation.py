"""How far a follower's log is its leader's: where it has to be cut.

A follower asks from the end of its log and names the leader epoch of its last batch (Fetch since
version 12). A leader that does not find both together in its own log answers with the largest epoch
at or below that one that it knows, and where that ended there (KIP-101, KIP-595). Records of the
follower with later epochs were never written by the leader, and of that epoch the two share nothing
after the end of either. Where the follower does not know that epoch it cuts to the largest below it
that it knows, and asks with that one: the largest epoch that *both* know is found (KIP-279).

The follower then asks again, from its new end, until the leader finds what it is asked. Each cut
takes an epoch from the follower or ends in one that both know, so there are at most as many cuts as
it has epochs. Nothing is cut that the leader has at the same offset.

Pure functions; they know nothing of logs and files. `tests/unit/replica/test_truncation.py` tries
all small pairs of histories.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Divergence(NamedTuple):
    """The leader's answer: the largest epoch it knows at or below the one asked, and its end."""

    epoch: int
    end_offset: int


class Epochs(Protocol):
    """What is asked of a log's `LeaderEpochs`."""

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]: ...


def cut_offset(epochs: Epochs, log_end_offset: int, leader: Divergence) -> int:
    """Where the follower's log has to end; its own end, if nothing but an epoch without a batch
    is more than the leader has."""
    epoch, own_end = epochs.end_offset_for(leader.epoch, log_end_offset)
    if epoch < 0:
        # Nothing is known of our own batches: records after the leader's end cannot be right.
        own_end = log_end_offset
    return max(0, min(own_end, leader.end_offset, log_end_offset))
