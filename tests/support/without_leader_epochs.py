"""`kbroker start` of a follower that knows no leader epochs: what they are there to prevent.

    python -m tests.support.without_leader_epochs --port ...      as `kbroker start`

WITHOUT in the environment says how it follows instead:

    cut         it begins by cutting its log at its high watermark, as Apache Kafka did before
                KIP-101: it does not know whether what is above was ever committed
    question    it does not say of which epoch its last batch is, so no leader sees a divergence
"""

from __future__ import annotations

import os
import sys
from typing import Any

from kbroker.cli.main import main
from kbroker.peer.replica_fetch import Asked
from kbroker.replica.fetcher import ReplicaFetcher
from kbroker.replica.fetcher_partition import FollowedPartition


def cut_at_the_high_watermark() -> None:
    begin = FollowedPartition.__init__

    def __init__(partition: FollowedPartition, *arguments: Any) -> None:
        begin(partition, *arguments)
        partition.replica.truncate_to(partition.replica.high_watermark)

    FollowedPartition.__init__ = __init__  # type: ignore[method-assign, assignment]


def ask_without_an_epoch() -> None:
    asked = FollowedPartition.asked

    def without(partition: FollowedPartition) -> Asked:
        return asked(partition)._replace(last_fetched_epoch=-1)

    FollowedPartition.asked = without  # type: ignore[method-assign, assignment]
    ReplicaFetcher._in_one_call = lambda _: False  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    {"cut": cut_at_the_high_watermark, "question": ask_without_an_epoch}[os.environ["WITHOUT"]]()
    sys.exit(main(["start", *sys.argv[1:]]))
