"""A broker of two data directories, one of which is gone while it serves."""

from __future__ import annotations

import json
from pathlib import Path

import confluent_kafka
import pytest

from kbroker.cli.main import main
from kbroker.peer.client import Client
from kbroker.testing.plain import PlainBroker as Broker
from tests.support.read_topic import read_topic
from tests.system.test_admin import get
from tests.unit.net.harness import eventually

PARTITIONS = range(4)
WAIT_S = 30.0


class TwoDirectories(Broker):
    """Below its `data_dir`."""

    @property
    def log_dirs(self) -> list[Path]:
        return [self.data_dir / "first", self.data_dir / "second"]

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--data-dir")
        given = f"log.dirs={','.join(map(str, self.log_dirs))}"
        return [*command[:at], "--override", given, *command[at + 2 :]]


def written(broker: Broker, partition: int) -> str:
    """The name of the delivery's error; a producer that does not try again."""
    errors: list[str] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "retries": 0, "message.timeout.ms": 30_000}
    )
    producer.produce(
        "words", b"v", partition=partition,
        on_delivery=lambda error, _: errors.append("" if error is None else error.name()),
    )  # fmt: skip
    assert producer.flush(WAIT_S) == 0
    return errors[0]


def leaders(broker: Broker) -> dict[int, int]:
    with Client(broker.bootstrap) as client:
        found = client.metadata(["words"]).topics["words"].partitions
        return {index: found[index].leader for index in PARTITIONS}


def directories(broker: Broker, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    capsys.readouterr()
    status = main(["logdirs", "-b", broker.bootstrap, "-o", "json"])
    errors = {each["directory"]: each["error"] for each in json.loads(capsys.readouterr().out)}
    assert status == int(any(error != "NONE" for error in errors.values()))
    return errors


def test_the_other_directory_serves_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with TwoDirectories(data_dir=tmp_path) as broker:
        first, second = broker.log_dirs
        assert main(["topic", "create", "words", "-p", "4", "-b", broker.bootstrap]) == 0
        assert [written(broker, index) for index in PARTITIONS] == [""] * 4
        lost = {index for index in PARTITIONS if (second / f"words-{index}").exists()}
        assert len(lost) == 2
        # As of a disk that is taken away; what is open stays so. It is not written to from here on.
        second.rename(tmp_path / "away")
        eventually(lambda: f"{second} has failed" in broker.log_text(), "the failure is seen")
        offline = f"_OfflineReplicaCount {len(lost)}\n"  # one after the other, after that line
        eventually(lambda: offline in get(broker, "/metrics").text, "what it holds is offline")
        assert directories(broker, capsys) == {
            str(first): "NONE", str(second): "KAFKA_STORAGE_ERROR"
        }  # fmt: skip
        assert [written(broker, index) for index in PARTITIONS] == [
            "KAFKA_STORAGE_ERROR" if index in lost else "" for index in PARTITIONS
        ]
        (tmp_path / "away").rename(second)  # too late
        assert f"[-] log-dir {second}: offline: it has failed" in get(broker, "/readyz").text
        assert main(["topic", "create", "new", "-p", "3", "-b", broker.bootstrap]) == 0
        assert sorted(path.name for path in first.glob("new-*")) == ["new-0", "new-1", "new-2"]
        broker.stop()
        broker.start()
        eventually(lambda: set(leaders(broker).values()) == {1}, "all partitions are led again")
        assert [written(broker, index) for index in PARTITIONS] == [""] * 4
        found = read_topic(broker.bootstrap, "words")
        assert len([each for each in found if each.partition in lost]) == 4
        assert len(found) == 10
