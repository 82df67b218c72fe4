"""The controller on a real embedded store with a fake replica manager."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from kbroker.errors import DataDirectoryError, ErrorCode, InvariantError, KafkaError
from kbroker.limits import CONTROLLER_EVENTS_MAX
from kbroker.metadata.controller import (
    ConfigChange,
    NewTopic,
    TopicResult,
    config_changes,
    records,
    topic_changes,
)
from kbroker.metadata.controller import controller as controller_module
from kbroker.metadata.controller.config_changes import NoSettings, ResourceChange
from kbroker.metadata.controller.settings_room import SettingsRoom
from kbroker.metadata.controller.skeleton import ensure_skeleton
from kbroker.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigKind,
    ConfigResource,
    ImageDelta,
)
from kbroker.metadata.store.base import Create, Operation
from kbroker.metadata.store.embedded import EmbeddedStore
from kbroker.types import TopicPartition
from tests.unit.metadata.controller.harness import WAIT_S, OneBroker, codes, eventually, wait

OK = ErrorCode.NONE


# --- start and stop -------------------------------------------------------------------------------


def test_a_first_start_registers_elects_and_publishes(broker: OneBroker) -> None:
    image = broker.image
    assert len(image.cluster_id) == 22
    assert image.controller_id == 0  # node id 0 is a node id like any other
    assert dict(image.brokers) == {0: BrokerImage(0, epoch=broker.controller.broker_epoch)}
    assert image.version == 1
    assert broker.replicas.calls == [ImageDelta(from_store=True)]
    assert broker.replicas.thread_names == {controller_module.THREAD_NAME}
    statistics = broker.controller.statistics()
    assert (statistics.active, statistics.controller_epoch) == (True, 1)


def test_cluster_id_stays_and_the_epoch_grows_with_every_start(broker: OneBroker) -> None:
    cluster_id = broker.image.cluster_id
    for epoch in (2, 3):
        broker.restart()
        assert broker.image.cluster_id == cluster_id
        assert broker.controller.statistics().controller_epoch == epoch


def test_a_new_cluster_takes_the_id_it_is_given(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    broker.start(cluster_id="given", broker=BrokerImage(0, "host", 9092, "rack"))
    assert broker.image.cluster_id == "given"
    assert broker.image.brokers[0] == BrokerImage(
        0, "host", 9092, "rack", broker.controller.broker_epoch
    )
    broker.restart(cluster_id="given")
    broker.stop()
    with pytest.raises(DataDirectoryError, match="belongs to cluster given, not to other"):
        broker.start(cluster_id="other")
    broker.start()
    assert broker.image.cluster_id == "given"
    broker.stop()


def test_a_clean_stop_leaves_office_at_once(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    watcher = broker.embedded.new_session()
    assert watcher.exists(records.CONTROLLER) and watcher.exists(records.broker_path(0))
    broker.controller.stop()
    assert not watcher.exists(records.CONTROLLER) and not watcher.exists(records.broker_path(0))
    assert not broker.controller.active
    broker.controller.stop()  # again is nothing
    watcher.close()
    broker.embedded.close()


def test_a_node_id_in_use_is_refused(broker: OneBroker, tmp_path: Path) -> None:
    twin = OneBroker(tmp_path / "unused", node_id=0)
    with pytest.raises(DataDirectoryError, match=r"node.id 0 is in use"):
        twin.start(broker.embedded.new_session())
    assert broker.controller.active


# --- topics ---------------------------------------------------------------------------------------


def test_a_created_topic_is_open_before_it_is_visible_and_visible_before_the_answer(
    broker: OneBroker,
) -> None:
    seen: list[ClusterImage] = []
    threads: list[str] = []
    answered = threading.Event()

    def done(results: list[TopicResult]) -> None:
        seen.append(broker.image)
        threads.append(threading.current_thread().name)
        answered.set()

    broker.controller.create_topics([NewTopic("t", 2, 1)], False, done)
    assert answered.wait(WAIT_S)
    assert threads == [controller_module.THREAD_NAME]
    topic = seen[0].topics["t"]
    assert broker.replicas.logs == {topic.topic_id: "t"}
    assert seen[0].version == 2
    assert broker.replicas.calls[-1] == ImageDelta(created=(topic,))


def test_the_answer_describes_the_new_topic(broker: OneBroker) -> None:
    (result,) = broker.create(NewTopic("t", configs={"retention.ms": "5"}))
    topic = broker.image.topics["t"]
    assert result == TopicResult(
        "t", OK, None, topic.topic_id, 3, 1, {"retention.ms": "5"}
    )  # three is num.partitions of the settings


def test_validate_only_says_the_same_and_does_nothing(broker: OneBroker) -> None:
    before = broker.image
    writes = broker.store.writes
    good, bad = broker.create("t", NewTopic("u", 0), validate_only=True)
    assert (good.error, good.partitions, good.replication_factor) == (OK, 3, 1)
    assert bad.error is ErrorCode.INVALID_PARTITIONS
    assert broker.image is before
    assert broker.store.writes == writes
    assert len(broker.replicas.calls) == 1


def test_one_bad_topic_does_not_stop_the_others(broker: OneBroker) -> None:
    results = broker.create("a", NewTopic("b", 1, 2), "a.b", "c", "a b")
    assert codes(results) == [
        OK,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        OK,
        OK,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert [result.name for result in results] == ["a", "b", "a.b", "c", "a b"]
    assert sorted(broker.image.topics) == ["a", "a.b", "c"]


def test_changed_defaults_hold_from_the_next_request(broker: OneBroker) -> None:
    broker.settings["num.partitions"] = 7
    assert broker.create("t")[0].partitions == 7


def test_topics_survive_a_restart_whole(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 12, 1, configs={"k": "v"}), NewTopic("u", 1, 1))
    broker.alter(ConfigChange("u", set={"a": "1"}))
    before = broker.image
    broker.restart()
    after = broker.image
    assert after.topics == before.topics
    assert after.topics["u"].configs == {"a": "1"}
    assert [each.index for each in after.topics["t"].partitions] == list(range(12))
    delta = broker.replicas.calls[-1]
    assert delta == ImageDelta(created=tuple(after.topics.values()), from_store=True)
    assert [topic.name for topic in delta.created] == ["t", "u"]


def test_new_epochs_are_started_when_asked_for_and_kept(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 2, 1))
    broker.restart()
    assert [each.leader_epoch for each in broker.image.topics["t"].partitions] == [0, 0]
    broker.restart(new_epochs_at_start=True)
    assert [each.leader_epoch for each in broker.image.topics["t"].partitions] == [1, 1]
    partitions = broker.image.topics["t"].partitions
    assert [each.partition_epoch for each in partitions] == [1, 1]
    broker.restart()
    assert broker.image.topics["t"].partitions == partitions


def test_a_topic_made_again_is_another_topic(broker: OneBroker) -> None:
    broker.create("t")
    broker.restart(new_epochs_at_start=True)
    first = broker.image.topics["t"]
    assert codes(broker.delete("t")) == [OK]
    assert "t" not in broker.image.topics and broker.replicas.logs == {}
    broker.create("t")
    second = broker.image.topics["t"]
    assert second.topic_id != first.topic_id
    assert {each.leader_epoch for each in second.partitions} == {0}
    assert broker.image.topic_by_id(first.topic_id) is None


def test_deletion_by_name_by_id_and_of_unknown_topics(broker: OneBroker) -> None:
    broker.create("a", "b", "c")
    topics = broker.image.topics
    unknown = UUID(int=7)
    results = broker.delete("a", "none", topics["b"].topic_id, unknown, topics["a"].topic_id)
    assert codes(results) == [
        OK,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        OK,
        ErrorCode.UNKNOWN_TOPIC_ID,
        OK,  # the same topic twice is the handler's to refuse; here it is deleted once
    ]
    assert [(r.name, r.topic_id) for r in results[:4]] == [
        ("a", topics["a"].topic_id),
        ("none", UUID(int=0)),
        ("b", topics["b"].topic_id),
        (None, unknown),
    ]
    assert list(broker.image.topics) == ["c"]
    assert broker.embedded.children(records.DELETED_TOPICS) == []
    assert broker.embedded.children(records.TOPIC_CONFIGS) == ["c"]


def test_configs_change_together_with_the_image(broker: OneBroker) -> None:
    broker.create(NewTopic("t", configs={"a": "1"}))
    results = broker.alter(
        ConfigChange("t", set={"b": "2"}),
        ConfigChange("none"),
        ConfigChange("t", remove=frozenset({"a"})),
    )
    assert codes(results) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, OK]
    assert results[2].configs == {"b": "2"}
    assert broker.image.topics["t"].configs == {"b": "2"}
    assert broker.replicas.calls[-1].reconfigured == (broker.image.topics["t"],)
    assert codes(broker.alter(ConfigChange("t", set={"bad": "1"}))) == [ErrorCode.INVALID_CONFIG]
    assert codes(broker.alter(ConfigChange("t", replace=True), validate_only=True)) == [OK]
    assert broker.image.topics["t"].configs == {"b": "2"}


def test_settings_of_all_topics_together_have_a_bound(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_changes, "SettingsRoom", partial(SettingsRoom, bytes_max=5))
    first, second = (NewTopic(name, configs={"k": "1"}) for name in ("a", "b"))
    assert codes(broker.create(first, second, NewTopic("c", configs={"k": "12"}))) == [
        OK,
        OK,
        ErrorCode.INVALID_CONFIG,
    ]
    assert codes(broker.alter(ConfigChange("a", set={"k": "12"}))) == [OK]
    assert codes(broker.alter(ConfigChange("b", set={"k": "12"}))) == [ErrorCode.INVALID_CONFIG]
    assert broker.image.topics["b"].configs == {"k": "1"}
    assert codes(broker.alter(ConfigChange("a", replace=True))) == [OK]
    assert codes(broker.alter(ConfigChange("b", set={"k": "12"}))) == [OK]


# --- a replica manager that fails -----------------------------------------------------------------


def fail_for(*names: str, error: Exception | None = None) -> Any:
    failure = error or RuntimeError("injected")
    return lambda name: failure if name in names else None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("injected"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (OSError(28, "No space left on device"), ErrorCode.KAFKA_STORAGE_ERROR),
        (KafkaError(ErrorCode.POLICY_VIOLATION, "no"), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_a_topic_that_cannot_be_opened_is_taken_back(
    broker: OneBroker, error: Exception, code: ErrorCode
) -> None:
    broker.replicas.fail_on = fail_for("bad-disk", error=error)
    results = broker.create("a", "bad-disk", "c")
    assert codes(results) == [OK, code, OK]
    assert sorted(broker.image.topics) == ["a", "c"]
    assert set(broker.replicas.logs) == set(broker.image.topic_ids)
    assert broker.embedded.children(records.TOPICS) == ["a", "c"]
    assert broker.embedded.children(records.DELETED_TOPICS) == []
    assert codes(broker.create("bad-disk")) == [code]  # alone as well
    broker.replicas.fail_on = fail_for()
    assert codes(broker.create("bad-disk")) == [OK]
    before = broker.image.topics
    broker.restart()
    assert broker.image.topics == before


def test_a_deleted_topic_is_gone_even_if_its_log_is_not(broker: OneBroker) -> None:
    broker.create("t", "u")
    topic = broker.image.topics["t"]
    broker.replicas.fail_on_delete = fail_for("t")
    assert codes(broker.delete("t", "u")) == [OK, OK]
    assert broker.image.topics == {}
    assert broker.replicas.logs == {topic.topic_id: "t"}
    assert len(broker.embedded.children(records.DELETED_TOPICS)) == 1
    # The name is used again: first the old log goes.
    broker.replicas.fail_on_delete = fail_for()
    broker.create("t")
    assert topic.topic_id not in broker.replicas.logs
    assert broker.embedded.children(records.DELETED_TOPICS) == []


def test_a_tombstone_never_touches_a_later_topic_of_the_same_name(broker: OneBroker) -> None:
    broker.create("t")
    old = broker.image.topics["t"]
    broker.replicas.fail_on_delete = fail_for("t")
    broker.delete("t")
    assert codes(broker.create("t")) == [OK]  # the old log still could not be removed
    new = broker.image.topics["t"]
    broker.restart()
    assert broker.image.topics["t"].topic_id == new.topic_id
    broker.replicas.fail_on_delete = fail_for()
    broker.restart()
    assert [each.topic_id for each in broker.replicas.deleted_last] == [old.topic_id]
    assert broker.image.topics["t"] == new
    assert broker.replicas.logs == {new.topic_id: "t"}


def test_an_unfinished_deletion_is_finished_at_the_next_start(broker: OneBroker) -> None:
    broker.create(NewTopic("t", 5, 1))
    topic = broker.image.topics["t"]
    broker.replicas.fail_on_delete = fail_for("t")
    broker.delete("t")
    broker.restart()
    assert broker.replicas.logs == {topic.topic_id: "t"}  # it failed again
    assert len(broker.embedded.children(records.DELETED_TOPICS)) == 1
    broker.replicas.fail_on_delete = fail_for()
    broker.restart()
    (deleted,) = broker.replicas.deleted_last
    assert (deleted.name, deleted.topic_id, len(deleted.partitions)) == ("t", topic.topic_id, 5)
    assert broker.replicas.logs == {}
    assert broker.embedded.children(records.DELETED_TOPICS) == []


def test_a_topic_that_does_not_open_at_start_stays_without_a_leader(broker: OneBroker) -> None:
    broker.create(NewTopic("a", 2, 1), NewTopic("b", 1, 1))
    broker.replicas.fail_on = fail_for("a")
    broker.restart()
    assert [each.leader for each in broker.image.topics["a"].partitions] == [-1, -1]
    assert [each.leader for each in broker.image.topics["b"].partitions] == [0]
    assert broker.controller.statistics().offline_partitions == 2
    broker.replicas.fail_on = fail_for()
    broker.restart()
    assert broker.controller.statistics().offline_partitions == 0


def test_only_the_partition_that_stays_offline_has_no_leader(broker: OneBroker) -> None:
    broker.create(NewTopic("a", 3, 1))
    broker.replicas.offline = [TopicPartition("a", 1)]
    broker.restart()
    assert [each.leader for each in broker.image.topics["a"].partitions] == [0, -1, 0]
    assert broker.controller.statistics().offline_partitions == 1
    broker.replicas.offline = []
    broker.restart()
    assert broker.controller.statistics().offline_partitions == 0


def test_a_configuration_that_cannot_be_applied_is_restored(broker: OneBroker) -> None:
    broker.create(NewTopic("t", configs={"a": "1"}), NewTopic("u"))
    broker.replicas.fail_on = fail_for("t")
    results = broker.alter(ConfigChange("t", set={"a": "2"}), ConfigChange("u", set={"a": "2"}))
    assert codes(results) == [ErrorCode.UNKNOWN_SERVER_ERROR, OK]
    assert broker.image.topics["t"].configs == {"a": "1"}
    assert broker.image.topics["u"].configs == {"a": "2"}
    broker.replicas.fail_on = fail_for()
    broker.restart()
    assert broker.image.topics["t"].configs == {"a": "1"}
    assert broker.image.topics["u"].configs == {"a": "2"}


# --- callers --------------------------------------------------------------------------------------


def test_a_callback_that_fails_is_not_the_end(broker: OneBroker) -> None:
    called = threading.Event()

    def done(_: Any) -> None:
        called.set()
        raise RuntimeError("injected")

    broker.controller.create_topics([NewTopic("t")], False, done)
    assert called.wait(WAIT_S)
    assert codes(broker.create("u")) == [OK]


def test_a_full_queue_refuses_at_once(broker: OneBroker) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        entered.set()
        leave.wait(WAIT_S)

    broker.controller.allocate_producer_ids(1, hold)
    assert entered.wait(WAIT_S)
    answers: list[Any] = []
    for _ in range(CONTROLLER_EVENTS_MAX):
        broker.controller.create_topics([], True, lambda results: None)
    broker.controller.create_topics([NewTopic("late")], False, answers.append)
    broker.controller.delete_topics(["late"], answers.append)
    broker.controller.allocate_producer_ids(1, answers.append)
    assert codes(answers[0]) == codes(answers[1]) == [ErrorCode.REQUEST_TIMED_OUT]
    assert answers[2].code is ErrorCode.REQUEST_TIMED_OUT
    leave.set()
    assert codes(broker_eventually_creates(broker)) == [OK]


def broker_eventually_creates(broker: OneBroker) -> list[TopicResult]:
    while True:
        results = broker.create("after")
        if results[0].error is not ErrorCode.REQUEST_TIMED_OUT:
            return results


def test_requests_queued_before_a_stop_are_done_and_later_ones_are_refused(
    tmp_path: Path,
) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    answers: list[Any] = []
    for number in range(20):
        broker.controller.create_topics([NewTopic(f"t{number}")], False, answers.append)
    broker.controller.stop()
    assert [codes(answer) for answer in answers] == [[OK]] * 20
    for ask in (
        lambda done: broker.controller.create_topics([NewTopic("t")], False, done),
        lambda done: broker.controller.delete_topics(["t"], done),
        lambda done: broker.controller.alter_topic_configs([ConfigChange("t")], False, done),
    ):
        assert codes(wait(ask)) == [ErrorCode.NOT_CONTROLLER]
    refused = wait(lambda done: broker.controller.allocate_producer_ids(1, done))
    assert refused.code is ErrorCode.NOT_CONTROLLER
    broker.embedded.close()


def test_an_impossible_request_for_ids_is_an_invariant(broker: OneBroker) -> None:
    for count in (0, -1, 10**7):
        with pytest.raises(InvariantError):
            broker.controller.allocate_producer_ids(count, lambda _: None)


# --- a store that fails or lies -------------------------------------------------------------------


@pytest.mark.parametrize("after_commit", [False, True])
def test_after_a_write_of_unknown_outcome_the_store_is_read_again(
    broker: OneBroker, after_commit: bool
) -> None:
    broker.create("before")
    broker.store.die_at = broker.store.writes + 1
    broker.store.die_after_commit = after_commit
    assert codes(broker.create("t")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(broker.delete("before")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert "before" in broker.image.topics  # readers go on with the published image
    broker.store.down = False
    again = ErrorCode.TOPIC_ALREADY_EXISTS if after_commit else OK
    assert codes(broker.create("t")) == [again]
    assert sorted(broker.image.topics) == ["before", "t"]
    assert set(broker.replicas.logs) == set(broker.image.topic_ids)
    # Only the difference was applied, not the whole image once more.
    assert [topic.name for delta in broker.replicas.calls for topic in delta.created] == [
        "before",
        "t",
    ]


def test_a_topic_of_another_writer_is_found_by_reading_again(broker: OneBroker) -> None:
    other = broker.embedded.new_session()
    other.create(records.topic_path("t"), records.encode_topic(UUID(int=5), [[0]]))
    other.create(records.partitions_path("t"))
    assert codes(broker.create("t")) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert broker.image.topics["t"].topic_id == UUID(int=5)
    assert codes(broker.create("t")) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    other.close()


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        (records.topic_path("t"), b"", "Expecting value"),
        (records.topic_path("t"), b"[]", "not a JSON object"),
        (records.topic_path("t"), b'{"version":4}', "newer"),
        (records.partition_state_path("t", 0), b"{}", "version None"),
        (
            records.partition_state_path("t", 0),
            b'{"version":1,"leader":4,"leader_epoch":0,"isr":[4]}',
            "is no replica",
        ),
        (records.CONTROLLER_EPOCH, b"-1", "no epoch"),
        (records.CLUSTER_ID, b'{"version":"1","id":""}', "empty"),
    ],
)
def test_a_damaged_node_stops_the_start_with_its_name(
    tmp_path: Path, path: str, data: bytes, reason: str
) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    broker.create("t")
    broker.stop()
    store = EmbeddedStore.open(tmp_path)
    store.set(path, data)
    store.close()
    with pytest.raises(DataDirectoryError, match=reason) as raised:
        broker.start()
    assert path in raised.value.message


def test_a_store_that_is_away_at_start_is_one_line(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    broker.start()
    broker.stop()
    store = EmbeddedStore.open(tmp_path)
    store.delete(records.TOPICS)
    store.close()
    with pytest.raises(DataDirectoryError, match=r"cannot be used.*/brokers/topics"):
        broker.start()


def test_a_lossy_start_that_could_not_be_noted_is_so_at_the_next_load_or_the_stop(
    tmp_path: Path,
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    for then in (lambda it: wait_for_a_load(it), lambda it: it.stop()):
        broker, noted = OneBroker(tmp_path), Mock(side_effect=[full, None])
        broker.start(broker=BrokerImage(0, lossy=True), start_is_known=noted)
        assert noted.call_count == 1
        then(broker)
        assert noted.call_count == 2
        broker.stop()


def wait_for_a_load(broker: OneBroker) -> None:
    broker.controller.reload()
    done: list[None] = []
    broker.controller.in_step(lambda: done.append(None))
    eventually(lambda: bool(done))


def test_of_missing_folders_another_makes_one(tmp_path: Path) -> None:
    store = EmbeddedStore.open(tmp_path)
    ensure_skeleton(store, "td1oS7a7TU-n3josdqba8w")
    for path in (records.LOSSES, records.LOG_DIR_EVENTS):
        store.delete(path)
    multi = store.multi

    def racing(operations: Sequence[Operation]) -> list[int]:
        store.multi = multi  # type: ignore[method-assign]
        multi([Create(records.LOG_DIR_EVENTS)])
        return multi(operations)

    store.multi = racing  # type: ignore[method-assign]
    ensure_skeleton(store, "td1oS7a7TU-n3josdqba8w")
    assert store.exists(records.LOSSES) and store.exists(records.LOG_DIR_EVENTS)
    store.close()


# --- settings of other resources ------------------------------------------------------------------


class AnySettings(NoSettings):
    """Rules that allow everything."""

    def check(self, resource: Any, configs: Mapping[str, str], given: object = ()) -> None:
        pass

    def edit_list(
        self, resource: ConfigResource, own: Mapping[str, str], key: str, parts: str, add: bool
    ) -> str:
        return parts


def test_settings_of_many_that_change_are_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = OneBroker(tmp_path)
    controller = broker.start(configs=AnySettings())
    changes = [
        ResourceChange(ConfigResource(ConfigKind.GROUP, f"group-{number}"), {"key": "1"})
        for number in range(500)
    ]
    with caplog.at_level(logging.INFO, "kbroker.controller"):
        results = wait(lambda done: controller.alter_resource_configs(changes, False, done))
        (line,) = [r.getMessage() for r in caplog.records if "settings" in r.getMessage()]
    assert results == [None] * 500
    assert "500" in line and "group group-0, " in line and len(line) < 500
    monkeypatch.setattr(config_changes, "SettingsRoom", partial(SettingsRoom, bytes_max=2_001))
    changes = [
        ResourceChange(ConfigResource(ConfigKind.GROUP, f"group-{number}"), {"key": "22"})
        for number in range(2)
    ]
    results = wait(lambda done: controller.alter_resource_configs(changes, False, done))
    assert results[0] is None
    assert results[1] is not None and results[1].code is ErrorCode.INVALID_CONFIG
    broker.stop()
