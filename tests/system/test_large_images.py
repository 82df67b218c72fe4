"""A broker starts in a cluster whose image is larger than one request may be."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing import Cluster

pytestmark = [pytest.mark.client, pytest.mark.timeout(120)]

REQUEST_BYTES_MAX = 140_000
# Each of nearly the length that one value may have.
LISTED = ",".join(f"0:{node}" for node in range(1_000, 5_600))
TOPICS = 6


def test_a_broker_starts_where_the_image_is_larger_than_a_request() -> None:
    settings = {"socket.request.max.bytes": REQUEST_BYTES_MAX}
    with Cluster(2, settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for number in range(TOPICS):
            topic = NewTopic(
                f"t{number}",
                1,
                config={
                    "leader.replication.throttled.replicas": LISTED,
                },
            )
            admin.create_topics([topic])[topic.topic].result()
        assert TOPICS * len(LISTED) > REQUEST_BYTES_MAX
        follower = next(each for each in cluster.brokers if each != cluster.controller().broker_id)
        cluster.restart(follower)
        cluster.wait_in_sync()
