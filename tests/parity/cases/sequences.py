"""Conversations over several APIs: each request sees the effect of the one before it."""

from __future__ import annotations

import uuid
from typing import Any

from kbroker.types import ApiKey
from tests.parity.book import Book
from tests.parity.cases import create_topics, delete_topics, describe_cluster, init_producer_id
from tests.parity.cases.create_topics import topic
from tests.parity.cases.metadata import ask as metadata
from tests.parity.requests import Raw, build
from tests.parity.talk import Talk

CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)

book = Book()
cases = book.cases
create, delete = create_topics.ask, delete_topics.ask
cluster, producer = describe_cluster.ask, init_producer_id.ask


@book.case("created and deleted", versions=CREATE_VERSIONS)
def created_and_deleted(talk: Talk, version: int) -> None:
    """Every step is seen by Metadata, by name and by id."""
    name = talk.name()
    talk.ask(metadata(12, [name]))
    talk.ask(create(version, topic(name, 2)), view=create_topics.only())
    talk.settled(name)
    found = talk.ask(metadata(12, [name])).topics[0].topic_id
    talk.ask(metadata(13, [found]))
    talk.ask(delete(min(version, 6), name))
    talk.gone(name)
    talk.ask(metadata(12, [name]))
    talk.ask(metadata(13, [found]))


@book.case("made again and again", versions=DELETE_VERSIONS)
def again(talk: Talk, version: int) -> None:
    """Each time another id, and leader epochs from 0 on."""
    name = talk.name()
    old: list[uuid.UUID] = []
    for partitions in (1, 3, 2):
        talk.ask(create(7, topic(name, partitions)), view=create_topics.only())
        talk.settled(name)
        old.append(talk.ask(metadata(12, [name])).topics[0].topic_id)
        talk.ask(metadata(12, list(old)))
        talk.ask(delete(version, name))
        talk.gone(name)
    talk.ask(metadata(12, list(old)))


@book.case("deleted by an id of one that is gone", versions=[6])
def by_old_id(talk: Talk, version: int) -> None:
    name = talk.topic()
    first = talk.topic_id(name)
    talk.delete(name)
    talk.topic(partitions=2)
    talk.topic_id(name)
    talk.ask(delete(version, first))
    talk.ask(metadata(12, [name]))
    talk.ask(delete(version, talk.topic_id(name)))
    talk.gone(name)
    talk.ask(metadata(12, [name]))


@book.case("created from two connections", versions=CREATE_VERSIONS)
def two_connections(talk: Talk, version: int) -> None:
    """One of the two requests is first; either may be."""
    name = talk.name()
    other = talk.connect()
    talk.send(create(version, topic(name)))
    other.send(create(version, topic(name)))
    codes = sorted(
        each.receive(record=False).topics[0].error_code.name for each in (talk.main, other)
    )
    talk.note("outcomes", codes)


@book.case("auto-created, then created", versions=range(1, 14))
def auto_created(talk: Talk, version: int) -> None:
    name = talk.name()
    talk.ask(metadata(version, [name], create=True), view=lambda data: data["topics"])
    talk.settled(name)
    talk.ask(create(7, topic(name)), view=create_topics.only())
    talk.topic_id(name)
    talk.ask(delete(6, name))
    talk.gone(name)
    talk.ask(metadata(12, [name]))


@book.case("a mix in one piece")
def mix(talk: Talk) -> None:
    """Cold requests of all kinds, sent before any answer is read: answered in their order."""
    name = talk.topic()
    talk.topic_id(name)
    talk.main.hold()
    talk.send(metadata(12, [name]))
    talk.send(create(7, topic(name)))
    talk.send(cluster(1))
    talk.send(producer(4))
    talk.send(metadata(4, [name]))
    talk.send(create(5, topic(talk.name("new")), validate_only=True))
    talk.send(producer(0))
    talk.send(delete(6, talk.name("none")))
    talk.send(cluster(2, operations=True))
    talk.send(metadata(1, ["a b"]))
    talk.main.release()
    for place in range(10):
        talk.receive(view=create_topics.only() if place in (1, 5) else None)


@book.case("created, seen and deleted in one piece", versions=CREATE_VERSIONS)
def all_in_one_piece(talk: Talk, version: int) -> None:
    """Requests of a connection are handled in order: each sees the effects of earlier ones."""
    name = talk.name()
    talk.main.hold()
    talk.send(create(version, topic(name)))
    talk.send(create(version, topic(name)))
    talk.send(delete(min(version, 6), name))
    talk.send(delete(min(version, 6), name))
    talk.main.release()
    for place in range(4):
        talk.receive(view=create_topics.only() if place < 2 else None)
    talk.gone(name)


@book.case("many pieces of a mix", over={f"{n} times": n for n in (5, 30)})
def repeated_mix(talk: Talk, times: int) -> None:
    name = talk.topic()
    talk.main.hold()
    for i in range(times):
        talk.send(metadata(i % 14, [name]))
        talk.send(cluster(i % 3))
        talk.send(producer(i % 6))
    talk.main.release()
    errors: list[Any] = []
    for _ in range(times):
        found, seen, made = (talk.receive(record=False) for _ in range(3))
        errors.append((found.topics[0].error_code.value, seen.error_code.value))
        errors.append((made.error_code.value, made.producer_epoch))
    talk.note("answers", errors)


@book.case("garbage in the middle", versions=range(14))
def garbage(talk: Talk, version: int) -> None:
    """Requests before it are answered, requests after it are not."""
    talk.main.hold()
    talk.send(cluster(0))
    talk.send(producer(1))
    talk.send(Raw(ApiKey.METADATA, version, b"\x7f"))
    talk.send(cluster(0))
    talk.main.release()
    for _ in range(4):
        talk.receive()


@book.case("another connection lives on")
def neighbour(talk: Talk) -> None:
    other = talk.connect()
    other.ask(cluster(0))
    talk.ask(Raw(ApiKey.METADATA, 12, b"\x7f"))
    other.ask(cluster(0))


@book.case("producers of two connections", versions=range(6))
def producers(talk: Talk, version: int) -> None:
    """Ids are fresh across connections and versions, also after one has gone."""
    first = talk.connect()
    ids = [first.ask(producer(version), record=False).producer_id for _ in range(5)]
    first.close()
    second = talk.connect()
    ids += [second.ask(producer(v), record=False).producer_id for v in range(6)]
    talk.note("different", len(set(ids)))
    talk.note("rising", ids == sorted(ids))


@book.case("a deleted topic is not there for", versions=[6])
def not_there(talk: Talk, version: int) -> None:
    name = talk.topic()
    talk.delete(name)
    talk.ask(delete(version, name))
    question = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    asked = [{"name": name, "partitions": [question]}]
    talk.ask(build(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=asked))
