"""What `kbroker doctor` says of several brokers, and `kbroker health` of their partitions."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.cli import cluster_checks
from kbroker.config import BrokerConfig
from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.findings import certificates, cluster_health
from kbroker.findings.checks import FAILING, OK, WARNING, Check
from kbroker.peer.messages import BrokerAddress, ClusterMetadata, PartitionMetadata, TopicMetadata


def part(
    index: int, leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> PartitionMetadata:
    return PartitionMetadata(index, ErrorCode.NONE, leader, 0, replicas, isr, ())


def cluster(brokers: tuple[int, ...], **topics: list[PartitionMetadata]) -> ClusterMetadata:
    return ClusterMetadata(
        "c",
        1,
        {each: BrokerAddress(each, "h", each, None) for each in brokers},
        {
            name: TopicMetadata(name, ErrorCode.NONE, None, False, tuple(parts))
            for name, parts in topics.items()
        },
    )


class Client:
    """Answers what is asked of settings; a topic or broker that it has none of is refused."""

    def __init__(self, metadata: ClusterMetadata, settings: Mapping[str, Mapping[str, str]]):
        self.answer = metadata
        self.settings = settings
        offered = {each: SimpleNamespace(versions={1: (4, 18)}) for each in metadata.brokers}
        self.cluster = SimpleNamespace(
            brokers={each: each for each in metadata.brokers}, link=offered.__getitem__
        )
        self.offered = offered

    def metadata(self) -> ClusterMetadata:
        return self.answer

    def configs(self, resource: Any, keys: Any) -> list[Any]:
        if resource.name not in self.settings:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "silent")
        values = self.settings[resource.name]
        return [SimpleNamespace(name=key, value=values[key]) for key in keys if key in values]


BROKER = {"default.replication.factor": "3", "min.insync.replicas": "2"}


def partitions(client: Any) -> list[Check]:
    found = cluster_health.partitions_of(client, client.answer, {})
    return list(cluster_health.partitions(found, client.answer))


def test_health_names_partitions_with_their_brokers() -> None:
    metadata = cluster(
        (1, 2),
        a=[part(0, 1, (1, 3), (1,)), part(1, 2, (2, 1), (2, 1)), part(2, -1, (3,), (3,))],
        b=[part(0, 1, (1, 2, 3), (1, 2))],
    )
    client = Client(
        metadata, {"a": {"min.insync.replicas": "2"}, "b": {"min.insync.replicas": "2"}}
    )
    assert partitions(client) == [
        Check(FAILING, "partitions", "1 of 4 have no leader: a-2 on broker 3", "start broker 3"),
        Check(
            FAILING,
            "partitions",
            "1 of 4 refuse acks=all, too few in sync: a-0 on broker 3",
            "start broker 3",
        ),
        Check(
            WARNING,
            "partitions",
            "2 of 4 lack in-sync replicas: a-0, b-0 on broker 3",
            "start broker 3",
        ),
    ]


def test_health_of_lagging_brokers_and_of_those_without_settings() -> None:
    metadata = cluster((1, 2), a=[part(each, 1, (1, 2), (1,)) for each in range(5)])
    (check,) = partitions(Client(metadata, {}))
    assert check == Check(
        WARNING,
        "partitions",
        "5 of 5 lack in-sync replicas: a-0, a-1, a-2, ... on broker 2",
        "wait, or see the log of broker 2",
    )


def test_health_of_a_cluster_that_is_well() -> None:
    (check,) = partitions(Client(cluster((1, 2), a=[part(0, 1, (1, 2), (2, 1))]), {}))
    assert (check.verdict, check.seen) == (OK, "1 in 1 topics, each with all its replicas")


def test_more_replicas_than_brokers() -> None:
    values = {"default.replication.factor": "3", "offsets.topic.replication.factor": "2", "x": None}
    found = cluster_checks.replication(1, values)
    assert [check.verdict for check in found] == [WARNING, FAILING]
    assert [check.verdict for check in cluster_checks.replication(3, values)] == [OK]
    assert list(cluster_checks.replication(1, {})) == []


def test_more_in_sync_than_replicas() -> None:
    values = {**BROKER, "min.insync.replicas": "4", "transaction.state.log.min.isr": "9"}
    (check,) = cluster_checks.replication(3, values)
    assert check.verdict == WARNING and check.seen.startswith("min.insync.replicas is 4 with")


@pytest.mark.parametrize(
    ("racks", "verdict", "words"),
    [
        ({1: None, 2: None}, OK, "no broker"),
        ({1: "a", 2: "b", 3: "a"}, OK, "3 brokers in 2 racks"),
        ({1: "a", 2: None}, WARNING, "broker 2 has no broker.rack"),
    ],
)
def test_racks_are_of_all_or_of_none(
    racks: dict[int, str | None], verdict: str, words: str
) -> None:
    check = cluster_checks.racks(racks)
    assert check.verdict == verdict and words in check.seen


def test_brokers_that_agree_and_those_that_do_not() -> None:
    metadata = cluster((1, 2, 3), a=[part(0, 1, (1, 2, 3), (1, 2, 3))])
    settings = {"1": BROKER, "2": BROKER, "3": BROKER, "a": {"min.insync.replicas": "2"}}
    client: Any = Client(metadata, settings)
    found = {check.name: check for check in cluster_checks.cluster(client)}
    assert found.keys() == {"replicas", "racks", "settings", "versions", "topics"}
    assert {check.verdict for check in found.values()} == {OK}
    client.settings["3"] = {**BROKER, "min.insync.replicas": "1"}
    client.settings["a"] = {"min.insync.replicas": "4"}
    client.offered[2].versions = {1: (4, 17)}
    found = {check.name: check for check in cluster_checks.cluster(client)}
    assert {name for name, check in found.items() if check.verdict == WARNING} == {
        "settings", "versions", "topics",
    }  # fmt: skip
    assert "min.insync.replicas 2 at 1+2, 1 at 3" in found["settings"].seen
    assert "API 1 4-18 at 1+3, 4-17 at 2" in found["versions"].seen
    assert "a (4 of 3)" in found["topics"].seen


def test_a_broker_alone_has_no_other_to_agree_with() -> None:
    client: Any = Client(cluster((1,)), {"1": {**BROKER, "default.replication.factor": "1"}})
    (check,) = cluster_checks.cluster(client)
    assert (check.name, check.verdict) == ("replicas", WARNING)  # min.insync.replicas=2 of 1


def test_findings_from_the_configuration_of_a_cluster() -> None:
    def checks(*values: str) -> dict[str, Check]:
        config = BrokerConfig.load(None, {}, ["listeners=PLAINTEXT://127.0.0.1:0", *values])
        return {check.name: check for check in cluster_checks.joining(config)}

    assert checks() == {}
    with socket.create_server(("127.0.0.1", 0)) as there, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        up, down = (f"127.0.0.1:{each.getsockname()[1]}" for each in (there, closed))
        some = checks(f"zookeeper.connect={up},{down}/kafka")
        assert (some["zookeeper"].verdict, some["between"].verdict) == (WARNING, WARNING)
        assert (
            f"1 of 2 cannot be connected to: {down}: Connection refused" in some["zookeeper"].seen
        )
        advertised = "advertised.listeners=PLAINTEXT://broker-1.example:9092"
        good = checks(f"zookeeper.connect={up}", advertised)
        assert {check.verdict for check in good.values()} == {OK}
        none = checks(f"zookeeper.connect={down}", advertised)
        assert none["zookeeper"].verdict == FAILING


@pytest.mark.parametrize(
    ("host", "verdict"),
    [("localhost", WARNING), ("::1", WARNING), ("10.0.0.1", OK), ("", OK), ("a.example", OK)],
)
def test_where_others_are_to_reach_it(host: str, verdict: str) -> None:
    assert cluster_checks.among_brokers("PLAINTEXT", host).verdict == verdict


def test_a_certificate_that_is_not_accepted_is_a_line_of_its_broker() -> None:
    client = Client(cluster((1, 2)), {})
    refused = UserError("b:1: its certificate is not accepted: expired", "see the store")

    def link(node_id: int) -> Any:
        if node_id == 2:
            raise refused
        return SimpleNamespace(certificate_not_after_s=lambda: 5.0)

    client.cluster.link = link
    assert list(cluster_health.brokers(client, client.answer)) == [
        Check(FAILING, "brokers", f"broker 2: {refused.cause}", "see the store")
    ]
    assert certificates.not_after_s(client) == {1: 5.0}
