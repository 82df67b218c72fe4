"""The controller's decisions as a table: what is asked, which code, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.decisions import (
    CHANGED_PARTITIONS_MAX,
    TOPIC_CONFIG_BYTES_MAX,
    ConfigChange,
    Defaults,
    NewTopic,
    new_topic_image,
    plan_config_change,
    plan_deletion,
    plan_topics,
)
from kbroker.metadata.image import ZERO_UUID, BrokerImage, ClusterImage, TopicImage
from tests.unit.metadata.controller.harness import edit_list, validate_configs

DEFAULTS = Defaults(3, 2, validate_configs)


def ids() -> Callable[[], UUID]:
    numbers: Iterator[int] = count(1)
    return lambda: UUID(int=next(numbers) << 64)


def cluster(*topics: str, brokers: int = 3) -> ClusterImage:
    new_id = ids()
    return (
        ClusterImage()
        .with_brokers(BrokerImage(node) for node in range(brokers))
        .with_topics(new_topic_image(name, new_id(), [(0,)], {}) for name in topics)
    )


def plan(*specs: NewTopic, image: ClusterImage | None = None) -> list[TopicImage | KafkaError]:
    return plan_topics(image or cluster("a.b", "plain"), specs, DEFAULTS, ids(), 0)


def plan_one(spec: NewTopic) -> TopicImage | KafkaError:
    return plan(spec)[0]


E = ErrorCode


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        (NewTopic(""), E.INVALID_TOPIC_EXCEPTION, "empty"),
        (NewTopic("."), E.INVALID_TOPIC_EXCEPTION, "'.'"),
        (NewTopic(".."), E.INVALID_TOPIC_EXCEPTION, "'..'"),
        (NewTopic("x" * 250), E.INVALID_TOPIC_EXCEPTION, "249"),
        (NewTopic("no/slash"), E.INVALID_TOPIC_EXCEPTION, "ASCII"),
        (NewTopic("a_b"), E.INVALID_TOPIC_EXCEPTION, "'a.b'"),
        (NewTopic("a.b"), E.TOPIC_ALREADY_EXISTS, "already exists"),
        (NewTopic("plain"), E.TOPIC_ALREADY_EXISTS, "already exists"),
        (NewTopic("t", 0, 1), E.INVALID_PARTITIONS, "larger than 0"),
        (NewTopic("t", -2, 1), E.INVALID_PARTITIONS, "larger than 0"),
        (NewTopic("t", 1, 0), E.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (NewTopic("t", 1, -2), E.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (NewTopic("t", 1, 4), E.INVALID_REPLICATION_FACTOR, "only 3 broker(s)"),
        (NewTopic("t", 0, 0), E.INVALID_REPLICATION_FACTOR, ""),  # this one is looked at first
        (NewTopic("t", 1, -1, {0: [0]}), E.INVALID_REQUEST, "number of partitions"),
        (NewTopic("t", -1, 1, {0: [0]}), E.INVALID_REQUEST, "replication factor"),
        (NewTopic("t", assignments={0: []}), E.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (NewTopic("t", assignments={0: [9]}), E.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (NewTopic("t", assignments={0: [1, 1]}), E.INVALID_REPLICA_ASSIGNMENT, "more than once"),
        (NewTopic("t", assignments={1: [0]}), E.INVALID_REPLICA_ASSIGNMENT, "from 0"),
        (NewTopic("t", assignments={0: [0], 2: [1]}), E.INVALID_REPLICA_ASSIGNMENT, "gap"),
        (NewTopic("t", assignments={-1: [0]}), E.INVALID_REPLICA_ASSIGNMENT, "from 0"),
        (
            NewTopic("t", assignments={0: [0], 1: [0, 1]}),
            E.INVALID_REPLICA_ASSIGNMENT,
            "Partition 1 has 2 replicas",
        ),
        (
            NewTopic("t", assignments=[(0, [0]), (0, [1])]),
            E.INVALID_REPLICA_ASSIGNMENT,
            "assigned more than once",
        ),
        (NewTopic("t", configs={"bad.key": "1"}), E.INVALID_CONFIG, "bad.key"),
        (NewTopic("t", configs={"z": None, "y": None}), E.INVALID_CONFIG, "y,z"),
        (NewTopic("t", 0, configs={"bad.key": "1"}), E.INVALID_CONFIG, ""),  # config comes first
        (NewTopic("plain", 0, 0, configs={"bad": "1"}), E.TOPIC_ALREADY_EXISTS, ""),
        (
            NewTopic("t", configs={"k": "x" * TOPIC_CONFIG_BYTES_MAX}),
            E.INVALID_CONFIG,
            "more than",
        ),
        (NewTopic("t", CHANGED_PARTITIONS_MAX + 1, 1), E.POLICY_VIOLATION, "10000"),
        (NewTopic("t", 2**31 - 1, 1), E.POLICY_VIOLATION, "10000"),
    ],
)
def test_topics_that_are_refused(spec: NewTopic, code: ErrorCode, words: str) -> None:
    refused = plan_one(spec)
    assert isinstance(refused, KafkaError)
    assert refused.code is code
    assert words in refused.message


def test_defaults_stand_for_minus_one() -> None:
    topic = plan_one(NewTopic("t"))
    assert isinstance(topic, TopicImage)
    assert (len(topic.partitions), topic.replication_factor) == (3, 2)
    topic = plan_one(NewTopic("t", -1, 1))
    assert isinstance(topic, TopicImage)
    assert (len(topic.partitions), topic.replication_factor) == (3, 1)


def test_a_new_topic_is_led_by_its_first_replica_at_epoch_0() -> None:
    topic = plan_one(NewTopic("t", assignments=[(1, [2, 0]), (0, [1, 2])], configs={"k": "v"}))
    assert isinstance(topic, TopicImage)
    assert [(each.index, each.replicas, each.leader) for each in topic.partitions] == [
        (0, (1, 2), 1),
        (1, (2, 0), 2),
    ]
    assert all(each.isr == each.replicas for each in topic.partitions)
    assert all((each.leader_epoch, each.partition_epoch) == (0, 0) for each in topic.partitions)
    assert topic.configs == {"k": "v"}
    assert topic.topic_id != ZERO_UUID


def test_topics_of_one_request_do_not_spoil_each_other() -> None:
    plans = plan(NewTopic("x.y"), NewTopic("x_y"), NewTopic("a b"), NewTopic(""), NewTopic("z"))
    assert [each.code if isinstance(each, KafkaError) else None for each in plans] == [
        None,
        None,
        E.INVALID_TOPIC_EXCEPTION,
        E.INVALID_TOPIC_EXCEPTION,
        None,
    ]
    made = [each for each in plans if isinstance(each, TopicImage)]
    assert len({each.topic_id for each in made}) == 3


def test_the_bound_on_partitions_is_over_the_whole_request() -> None:
    half = CHANGED_PARTITIONS_MAX // 2
    fits = plan(NewTopic("a", half, 1), NewTopic("b", half, 1), NewTopic("c", 0))
    assert [isinstance(each, TopicImage) for each in fits] == [True, True, False]
    over = plan(NewTopic("a", half, 1), NewTopic("b", half, 1), NewTopic("c", assignments={0: [0]}))
    assert all(isinstance(each, KafkaError) and each.code is E.POLICY_VIOLATION for each in over)


# --- deletion, configuration ----------------------------------------------------------------------


def test_deletion_by_name_and_by_id() -> None:
    image = cluster("a", "b")
    assert plan_deletion(image, "a") is image.topics["a"]
    assert plan_deletion(image, image.topics["b"].topic_id) is image.topics["b"]
    for asked, code in (
        ("c", E.UNKNOWN_TOPIC_OR_PARTITION),
        (UUID(int=99), E.UNKNOWN_TOPIC_ID),
        (ZERO_UUID, E.INVALID_REQUEST),
    ):
        refused = plan_deletion(image, asked)
        assert isinstance(refused, KafkaError) and refused.code is code


def change(**fields: Any) -> dict[str, str] | ErrorCode:
    image = cluster("t")
    image = image.with_topics([image.topics["t"].with_configs({"a": "1", "b": "2"})])
    plan = plan_config_change(
        image.topics["t"], ConfigChange("t", **fields), validate_configs, edit_list
    )
    return plan.code if isinstance(plan, KafkaError) else dict(plan.configs)


def test_config_changes_are_incremental_or_replace_everything() -> None:
    assert change(set={"b": "3", "c": "4"}) == {"a": "1", "b": "3", "c": "4"}
    assert change(remove=frozenset({"a", "none"})) == {"b": "2"}
    assert change(set={"c": "4"}, replace=True) == {"c": "4"}
    assert change(replace=True) == {}
    assert change(set={"bad": "1"}) is E.INVALID_CONFIG
    assert change(set={"c": None}) is E.INVALID_CONFIG


def test_lists_are_edited_from_the_topics_own() -> None:
    assert change(append={"a": "x"}) == {"a": "1+x", "b": "2"}
    assert change(subtract={"b": "y"}, append={"c": "x"}) == {"a": "1", "b": "2-y", "c": "+x"}
    assert change(append={"bad": "x"}) is E.INVALID_CONFIG


def test_a_change_that_changes_nothing_leaves_the_topic_as_it_is() -> None:
    topic = cluster("t").topics["t"].with_configs({"a": "1"})
    for same in ({"set": {"a": "1"}}, {"remove": frozenset({"b"})}, {}):
        assert plan_config_change(topic, ConfigChange("t", **same), print, edit_list) is topic


def test_a_bad_value_is_answered_before_a_missing_topic() -> None:
    for fields, code in (
        ({}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"set": {"bad": "1"}}, E.INVALID_CONFIG),
    ):
        plan = plan_config_change(None, ConfigChange("t", **fields), validate_configs, edit_list)
        assert isinstance(plan, KafkaError) and plan.code is code


@pytest.mark.parametrize(
    ("factor", "stopping", "placed"),
    [
        (2, set(), [(0, 1), (1, 2), (2, 0)]),
        (2, {0}, [(1, 2), (2, 1), (1, 2)]),
        (1, {0, 1}, [(2,), (2,), (2,)]),
        # The others are too few: they lead.
        (3, {0}, [(1, 2, 0), (1, 2, 0), (2, 1, 0)]),
        (1, {0, 1, 2}, [(0,), (1,), (2,)]),
    ],
)
def test_brokers_that_stop_get_no_replicas_that_others_can_have(
    factor: int, stopping: set[int], placed: list[tuple[int, ...]]
) -> None:
    (topic,) = plan_topics(cluster(), [NewTopic("t", 3, factor)], DEFAULTS, ids(), 0, stopping)
    assert isinstance(topic, TopicImage)
    assert [each.replicas for each in topic.partitions] == placed
