"""Consumer groups as Apache Kafka 4.3.0 writes them to `__consumer_offsets`: vectors of records.

    python -m tests.support.kafka_consumer_groups      have Apache Kafka write them anew

A Java consumer with group.protocol=consumer that reads, commits and leaves; members that subscribe
by names and by an expression, give up partitions, go away and come back under their instance id;
a classic group that becomes a consumer group and a classic one again. The log is read after a stop
in order. Nothing here needs Java but the command.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kbroker.types import ApiKey
from lab.jars import KAFKA_VERSION
from tests.support.source_tree import ROOT

FILE: Final = (
    ROOT / "tests/vectors" / f"kafka_{KAFKA_VERSION.replace('.', '_')}_consumer_groups.json"
)
# Known before the records are: hashes are of them.
TOPICS: Final = {"orders": 3, "orders-eu": 2}
_WAIT_S: Final = 30.0
_CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def log() -> bytes:
    """The batches of the only partition of `__consumer_offsets`."""
    return bytes.fromhex(json.loads(FILE.read_text())["log"])


def topic_ids() -> dict[str, str]:
    """In hexadecimal, by name."""
    found: dict[str, str] = json.loads(FILE.read_text())["topics"]
    return found


def main() -> None:
    from tests.support.kafka import KafkaBroker

    settings = {
        "offsets.topic.num.partitions": 1,
        "group.consumer.assignment.interval.ms": 0,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "log.cleaner.enable": "false",
    }
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        with KafkaBroker(settings, data) as broker:
            topics = _tell_the_story(broker.bootstrap, Path(place))
            broker.stop()
        (written,) = data.glob("__consumer_offsets-0/*.log")
        document = {"kafka": KAFKA_VERSION, "topics": topics, "log": written.read_bytes().hex()}
    FILE.write_text(json.dumps(document, indent=1) + "\n")


class Member:
    """A member of the consumer protocol; each heartbeat is a call."""

    def __init__(self, talk: Any, group: str, member_id: str, **how: Any) -> None:
        self._talk = talk
        self._group = group
        self.member_id = member_id
        self.how = how
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []

    def beat(self, epoch: int | None = None, **more: Any) -> Any:
        from tests.parity.requests import build

        epoch = self.epoch if epoch is None else epoch
        whole = {"rebalance_timeout": 60_000, "topic_partitions": self.owned, **self.how}
        fields = whole if epoch == 0 or not self.owned else {"topic_partitions": self.owned}
        if "instance_id" in self.how:
            fields["instance_id"] = self.how["instance_id"]
        answer = self._talk.quietly(
            build(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id=self._group,
                member_id=self.member_id, member_epoch=epoch, **{**fields, **more},
            )
        )  # fmt: skip
        if answer.error_code.value == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = [
                    {"topic_id": each.topic_id, "partitions": list(each.partitions)}
                    for each in answer.assignment.topic_partitions
                ]
        return answer

    def beat_until(self, count: int, *others: Member) -> None:
        """Until it owns so many partitions; the others give up what they have to."""

        def reached() -> bool:
            for each in (self, *others):
                each.beat()
            return sum(len(each["partitions"]) for each in self.owned) == count

        _until(reached)


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _tell_the_story(bootstrap: str, place: Path) -> dict[str, str]:
    from tests.parity.cases._groups import Member as ClassicMember
    from tests.parity.cases._groups import subscription
    from tests.parity.data import batch, stored
    from tests.parity.requests import build
    from tests.parity.talk import Talk

    host, _, port = bootstrap.rpartition(":")
    talk = Talk((host, int(port)), "")
    find = build(ApiKey.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g"])
    topics = {name: talk.topic(name, partitions=count) for name, count in TOPICS.items()}
    _until(lambda: talk.quietly(find).coordinators[0].error_code.value == 0)
    described = talk.quietly(
        build(ApiKey.METADATA, 13, topics=[{"name": name} for name in topics.values()])
    )
    stored(talk, topics["orders"], batch(b"one", b"two"))
    _run_java(bootstrap, topics["orders"], place)

    first = Member(talk, "by-names", "first", subscribed_topic_names=[topics["orders"]])
    first.beat()
    second = Member(
        talk, "by-names", "second", rack_id="r1", server_assignor="range",
        subscribed_topic_regex="orders.*",
    )  # fmt: skip
    second.beat()
    second.beat_until(3, first)
    first.beat(subscribed_topic_names=[topics["orders-eu"]])
    first.beat(-1)

    fixed = Member(
        talk, "fixed", "before", instance_id="i", subscribed_topic_names=[*topics.values()]
    )
    fixed.beat_until(5)
    fixed.beat(-2)
    back = Member(
        talk, "fixed", "after", instance_id="i", subscribed_topic_names=[*topics.values()]
    )
    back.beat_until(5)
    back.beat(-1)

    classic = ClassicMember(
        talk, "moved", protocols=(("range", subscription(topics["orders"], version=1)),)
    )
    classic.join()
    classic.sync([(classic.id, b"\0\1\0\0\0\0\0\0\0\0")])
    newer = Member(talk, "moved", "newer", subscribed_topic_names=[topics["orders"]])
    newer.beat()
    newer.beat()
    newer.beat(-1)
    talk.close()
    return {each.name: each.topic_id.hex for each in described.topics}


def _run_java(bootstrap: str, topic: str, place: Path) -> None:
    """A console consumer that reads the two records there are, commits, and leaves."""
    from tests.support import kafka_classes

    settings = place / "consumer.properties"
    settings.write_text("group.protocol=consumer\nclient.id=java\nauto.offset.reset=earliest\n")
    command = kafka_classes.command(
        _CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--group", "java",
        "--max-messages", "2", "--command-config", str(settings),
    )  # fmt: skip
    ran = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert ran.stdout.split() == [b"one", b"two"], ran.stderr


if __name__ == "__main__":
    main()
