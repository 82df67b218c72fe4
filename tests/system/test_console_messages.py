"""Pages about topics, messages and groups of a running broker: their numbers are those of the
commands, and what a visitor changes is changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import confluent_kafka
import pytest

from kbroker.cli.main import main
from kbroker.clock import SystemClock
from kbroker.compression import Codec
from kbroker.console import group_samples
from kbroker.console.asked import Refused
from kbroker.console.message_download import download
from kbroker.console.message_tail import tail
from kbroker.console.page import Form, Page, to
from kbroker.console.pages import group, groups, messages, topic, topics
from kbroker.console.writes import (
    add_partitions,
    configure_topic,
    create_topic,
    delete_group,
    delete_topic,
    reset_offsets,
)
from kbroker.peer.client import Client
from kbroker.peer.group_consumer import GroupConsumer
from kbroker.peer.groups import Groups
from kbroker.peer.messages import NewTopic
from kbroker.protocol.record_batch import Record, encode_batch
from kbroker.testing import Broker
from kbroker.types import TopicPartition
from tests.unit.console.fake_log import asked, column, facts, notices, query_of, table

COMPACTED, PLAIN = "keys", "orders"
AT = TopicPartition(COMPACTED, 0)
Make = Callable[[Any], Page]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={PLAIN: 3}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap, timeout_ms=10_000) as made:
        yield made


@pytest.fixture
def document(broker: Broker, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(*words: str) -> Any:
        main([*words, "-b", broker.bootstrap, "-o", "json"])
        return json.loads(capsys.readouterr().out)

    return run


def sent(make: Make, client: Client, values: Mapping[str, str], **path: str) -> Page:
    """What a form's POST answers."""
    return make(asked(client, values, **path)._replace(may_write=True, sent=True))


def apply_values(page: Page) -> dict[str, str]:
    """Of the second form, as a browser sends it."""
    (form,) = [each for each in page.sections if isinstance(each, Form) and each.name == "apply"]
    return {field.name: field.value for field in form.fields}


def fill_compacted(broker: Broker, client: Client, now_ms: int) -> None:
    """Compaction leaves the last batch of each codec's round; then headers, nulls, transactions."""
    settings = {
        "cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01",
    }  # fmt: skip
    client.create_topics([NewTopic(COMPACTED, 1, 1, settings)])
    for step in range(20):
        rows = [
            Record(b"key-%d" % (n % 5), b"%d" % (100 * step + n), (), now_ms + step)
            for n in range(100)
        ]
        client.produce({AT: encode_batch(rows, codec=list(Codec)[step % len(Codec)])})
    headers = (("trace", b"one"), ("empty", b""), ("none", None))
    client.produce({AT: encode_batch([Record(b"with", b"", headers, now_ms + 50)])})
    broker.compact()
    client.produce({AT: encode_batch([Record(b"gone", None, (), now_ms + 60)])})
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}
    )
    producer.init_transactions(30)
    for value, end in (("aborted", producer.abort_transaction),
                       ("committed", producer.commit_transaction)):  # fmt: skip
        producer.begin_transaction()
        producer.produce(COMPACTED, value.encode(), key="tx", timestamp=now_ms + 70)
        producer.flush(30)
        end(30)


def test_messages_newest_first(broker: Broker, client: Client) -> None:
    now_ms = SystemClock().wall_ms()
    fill_compacted(broker, client, now_ms)
    tailed = tail(asked(client, topic=COMPACTED))
    assert next(tailed) is None
    page = messages.make(asked(client, topic=COMPACTED))
    kept = [1999, 1998, 1997, 1996, 1995]
    assert column(page, "offset") == [2004, 2002, 2001, 2000, *kept]
    assert column(page, "value") == ["committed", "aborted", None, "", *map(str, kept)]
    assert column(page, "headers")[3] == "trace=one\nempty=\nnone"
    assert column(page, "timestamp_ms")[2] == now_ms + 60
    committed = messages.make(asked(client, {"isolation": "read_committed"}, topic=COMPACTED))
    assert column(committed, "offset") == [2004, 2001, 2000, *kept]
    every = messages.make(asked(client, {"isolation": "all"}, topic=COMPACTED))
    assert column(every, "offset")[:4] == [2005, 2004, 2003, 2002]
    assert str(column(every, "value")[2]).startswith("abort, producer ")
    oldest = messages.make(asked(client, {"order": "oldest"}, topic=COMPACTED))
    assert column(oldest, "offset") == [*reversed(kept), 2000, 2001, 2002, 2004]
    one = messages.make(asked(client, {"key": "key-3", "rows": "1"}, topic=COMPACTED))
    assert column(one, "value") == ["1998"]
    rest = messages.make(asked(client, query_of(table(one, "messages").next_path), topic=COMPACTED))
    assert column(rest, "value") == []
    lines = b"".join(download(asked(client, topic=COMPACTED))).splitlines()
    assert [json.loads(line)["offset"] for line in lines] == column(page, "offset")
    client.produce({AT: encode_batch([Record(b"late", b"x", (), now_ms)])})
    row = next(tailed)
    assert row is not None and not hasattr(row, "what")
    assert [cell.value for cell in row][1:5] == [2006, now_ms, "late", "x"]


def test_topics_have_the_numbers_of_the_commands(
    client: Client, document: Callable[..., Any]
) -> None:
    page = topics.make(asked(client))
    listed = {row["name"]: row for row in document("topic", "list")}
    for name in ("partitions", "replication_factor"):
        values = dict(
            zip(column(page, "name", "topics"), column(page, name, "topics"), strict=True)
        )
        assert values == {each: row[name] for each, row in listed.items()}
    ((directory,),) = client.log_directories().values()
    sizes = {name: 0 for name in listed}
    for log in directory.logs:
        if log.partition.topic in sizes:
            sizes[log.partition.topic] += log.size_bytes
    names = column(page, "name", "topics")
    assert dict(zip(names, column(page, "size_bytes", "topics"), strict=True)) == sizes
    assert sizes[COMPACTED] > 0
    assert column(topics.make(asked(client, {"first": str(2**63 - 1)})), "name", "topics") == []
    hidden = topics.make(asked(client, {"internal": "1", "q": "consumer"}))
    assert {"__consumer_offsets"} >= {*column(hidden, "name", "topics")}
    assert column(topics.make(asked(client, {"q": "RDER"})), "name", "topics") == [PLAIN]
    (described,) = document("topic", "describe", PLAIN)
    one = topic.make(asked(client, topic=PLAIN))
    for name in ("partition", "leader", "leader_epoch", "log_start_offset", "log_end_offset"):
        wanted = [each[name] for each in described["partitions"]]
        assert column(one, name, "partitions") == wanted
    assert facts(one, "topic")["topic_id"] == described["topic_id"]
    settings = dict(
        zip(column(one, "key", "configs"), column(one, "value", "configs"), strict=True)
    )
    (known,) = document("config", "get", "-t", PLAIN, "--all")
    assert settings == {each["key"]: each["value"] for each in known["configs"]}
    with pytest.raises(Refused) as raised:
        topic.make(asked(client, topic="nothing"))
    assert raised.value.status == 404


def test_groups_have_the_numbers_of_the_commands(
    broker: Broker, client: Client, document: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = group_samples.GroupSamples()
    monkeypatch.setattr(group, "SAMPLES", samples)
    now_ms = SystemClock().wall_ms()
    batch = encode_batch([Record(b"k", b"v", (), now_ms) for _ in range(10)])
    places = [TopicPartition(PLAIN, index) for index in range(3)]
    client.produce(dict.fromkeys(places, batch))
    with Client(broker.bootstrap) as inside:
        member = GroupConsumer(inside, "billing", PLAIN, lambda some: dict.fromkeys(some, 0))
        member.poll()
        member.positions.update({places[0]: 10, places[1]: 4})
        member.commit()
        page = group.make(asked(client, group="billing"))
        (described,) = document("group", "describe", "billing")
        rows = described["partitions"]
        for name in ("topic", "partition", "committed", "end", "lag", "member_id", "client_id"):
            assert column(page, name, "partitions") == [row[name] for row in rows]
        found = facts(page, "group")
        assert (found["state"], found["lag"], found["member_count"]) == ("Stable", 16, 1)
        assert found["coordinator"] == described["coordinator"]
        assert found["read_per_s"] is None
        assert column(page, "assigned", "members") == [3]
        listed = groups.make(asked(client))
        assert column(listed, "group", "groups") == ["billing"]
        assert column(listed, "lag", "groups") == [described["lag"]] == [16]
        assert column(listed, "members", "groups") == [1]
        assert column(listed, "type", "groups") == ["classic"]
        of_topic = topic.make(asked(client, topic=PLAIN))
        assert column(of_topic, "lag", "groups") == [16]
        assert "group" in described
        with pytest.raises(Refused) as raised:
            sent(reset_offsets.make, client, {"where": "to_latest"}, group="billing")
        assert raised.value.status == 409
        member.close()
    after = group.make(asked(client, {"history": "1"}, group="billing"))
    assert column(after, "why", "departures") == ["left"]
    history = document("group", "why", "billing")["rebalances"]
    assert column(after, "epoch", "rebalances") == [each["epoch"] for each in reversed(history)]
    assert column(groups.make(asked(client, {"type": "share"})), "group", "groups") == []


def test_offsets_are_reset_to_those_of_the_dry_run(client: Client) -> None:
    places = [TopicPartition(PLAIN, index) for index in range(3)]
    groups_of = Groups(client)
    groups_of.commit("moved", {places[0]: 1, places[1]: 1})
    page = sent(reset_offsets.make, client, {"where": "to_latest", "topic": PLAIN}, group="moved")
    before = column(page, "before", "partitions")
    seen = column(page, "after", "partitions")
    assert before == [1, 1, None]
    assert {where: each.offset for where, each in groups_of.offsets("moved").items()} == {
        places[0]: 1, places[1]: 1,
    }  # fmt: skip
    now_ms = SystemClock().wall_ms()
    batch = encode_batch([Record(b"k", b"later", (), now_ms)])
    client.produce(dict.fromkeys(places, batch))
    done = sent(reset_offsets.make, client, apply_values(page), group="moved")
    assert column(done, "after", "partitions") == seen
    committed = groups_of.offsets("moved")
    assert [committed[where].offset for where in places] == seen
    shifted = sent(reset_offsets.make, client, {"where": "shift_by", "value": "-2"}, group="moved")
    assert column(shifted, "after", "partitions") == [int(str(each)) - 2 for each in seen]
    for values in ({"step": "apply"}, {"step": "apply", "offsets": "x:y:z"},
                   {"where": "to_moment", "value": "soon"}, {"partition": "1"}):  # fmt: skip
        with pytest.raises(Refused):
            sent(reset_offsets.make, client, values, group="moved")
    with pytest.raises(Refused):
        sent(delete_group.make, client, {"step": "apply", "typed": "mover"}, group="moved")
    sent(delete_group.make, client, {"step": "apply", "typed": "moved"}, group="moved")
    with pytest.raises(Refused):
        group.make(asked(client, group="moved"))


def test_a_topic_is_made_changed_and_deleted(client: Client, document: Callable[..., Any]) -> None:
    values = {"name": "made", "partitions": "2", "configs": "retention.ms=1000"}
    page = sent(create_topic.make, client, values)
    assert "made" not in client.metadata().topics
    assert facts(page, "topic")["retention.ms"] == "1000"
    sent(create_topic.make, client, apply_values(page))
    assert len(client.metadata(["made"]).topics["made"].partitions) == 2
    again = sent(create_topic.make, client, values)
    assert again.status == 409
    assert notices(again)[0].startswith("TOPIC_ALREADY_EXISTS")

    change = {"key": "retention.ms", "value": "x"}
    assert sent(configure_topic.make, client, change, topic="made").status == 409
    change["value"] = "2000"
    page = sent(configure_topic.make, client, change, topic="made")
    assert column(page, "before", "setting") == ["1000"]
    sent(configure_topic.make, client, apply_values(page), topic="made")
    ((entry),) = document("config", "get", "-t", "made")[0]["configs"]
    assert (entry["key"], entry["value"]) == ("retention.ms", "2000")
    unset = sent(configure_topic.make, client, {**change, "action": "unset"}, topic="made")
    sent(configure_topic.make, client, apply_values(unset), topic="made")
    assert document("config", "get", "-t", "made")[0]["configs"] == []

    page = sent(add_partitions.make, client, {"count": "3"}, topic="made")
    assert len(client.metadata(["made"]).topics["made"].partitions) == 2
    sent(add_partitions.make, client, apply_values(page), topic="made")
    assert len(client.metadata(["made"]).topics["made"].partitions) == 3
    assert sent(add_partitions.make, client, {"count": "1"}, topic="made").status == 409

    with pytest.raises(Refused):
        sent(delete_topic.make, client, {"step": "apply", "typed": "MADE"}, topic="made")
    sent(delete_topic.make, client, {"step": "apply", "typed": "made"}, topic="made")
    assert "made" not in client.metadata().topics


def test_nothing_is_changed_without_the_right_to_or_by_get(client: Client) -> None:
    values = {"step": "apply", "name": "made", "typed": PLAIN, "count": "9"}
    for make, path in (
        (create_topic.make, {}),
        (delete_topic.make, {"topic": PLAIN}),
        (add_partitions.make, {"topic": PLAIN}),
        (configure_topic.make, {"topic": PLAIN}),
    ):
        by_get = asked(client, values, **path)._replace(may_write=True)
        make(by_get)
        with pytest.raises(Refused) as raised:
            make(by_get._replace(may_write=False, sent=True))
        assert raised.value.status == 403
    found = client.metadata().topics
    assert "made" not in found
    assert len(found[PLAIN].partitions) == 3


def test_a_topic_is_made_by_the_forms_of_the_console() -> None:
    """By HTTP, as a browser sends them; a page of another site may not."""
    own = {"Sec-Fetch-Site": "same-origin"}
    settings = {"admin.console.write": "true", "admin.listeners": "http://127.0.0.1:0"}
    with Broker(settings) as running:

        def ask(path: str, headers: Mapping[str, str], **form: str) -> tuple[int, str]:
            body = urlencode(form).encode() if form else None
            request = Request(running.admin + path, body, dict(headers))
            try:
                with urlopen(request, timeout=30) as found:
                    return found.status, found.read().decode()
            except HTTPError as error:
                return error.code, error.read().decode()

        path = to("writes", "topics", "create")
        assert ask(path, {})[0] == 200
        status, planned = ask(f"{path}?format=json", own, name="made", partitions="2")
        assert (status, "nothing is changed yet" in planned) == (200, True)
        form = {"name": "made", "partitions": "2", "step": "apply"}
        assert ask(path, {"Sec-Fetch-Site": "cross-site"}, **form)[0] == 403
        assert '"made"' not in ask("/ui/topics?format=json", {})[1]
        assert ask(path, own, **form)[0] == 200
        assert '"made"' in ask("/ui/topics?format=json", {})[1]
        for words in (("topics", "made", "configure"), ("topics", "made", "grow"),
                      ("topics", "made", "delete")):  # fmt: skip
            assert ask(to("writes", *words), {})[0] == 200
        for word in ("reset", "delete"):
            assert ask(to("writes", "groups", "none", word), {})[0] == 404
