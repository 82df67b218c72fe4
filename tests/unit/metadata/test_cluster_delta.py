"""Differences between images: taken, sent, read back, and applied to their base."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kbroker.metadata.cluster_delta import ClusterDelta, DeltaMismatchError
from kbroker.metadata.cluster_delta_codec import decode_delta, encode_delta
from kbroker.metadata.controller.decisions import new_topic_image
from kbroker.metadata.features import FinalizedFeatures, Supported
from kbroker.metadata.image import (
    NO_ENVELOPE,
    NO_LEADER,
    BrokerEndpoint,
    BrokerImage,
    ClusterImage,
    ConfigKind,
    ConfigResource,
    TopicImage,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.quota.entities import EVERY, QuotaEntity
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.rights import Operation, ResourceType
from tests.support.acls import acl_set

NAMES = ("a", "b", "__consumer_offsets")
NODES = st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True).map(tuple)
CONFIGS = st.dictionaries(st.sampled_from(["k", "retention.ms"]), st.text(max_size=5), max_size=2)
LEVELS = st.integers(-(2**15), 2**15 - 1)
RESOURCES = st.builds(ConfigResource, st.sampled_from(ConfigKind), st.sampled_from(["", "1", "é"]))

ACLS = st.builds(
    Acl,
    st.builds(
        Pattern,
        st.sampled_from([ResourceType.TOPIC, ResourceType.USER]),
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        st.sampled_from(["a", "é", "*"]),
    ),
    st.builds(
        Entry,
        st.sampled_from(["User:a", "User:*"]),
        st.sampled_from(["*", "h"]),
        st.sampled_from([each for each in Operation if each is not Operation.ANY]),
        st.sampled_from([Permission.DENY, Permission.ALLOW]),
    ),
)


@st.composite
def topics(draw: st.DrawFn, name: str) -> TopicImage:
    # Of few ids, so that a name is often made again under another one.
    topic_id = UUID(int=1 + NAMES.index(name) + 8 * draw(st.integers(0, 1)))
    topic = new_topic_image(name, topic_id, draw(st.lists(NODES, min_size=1)), draw(CONFIGS))
    return replace(
        topic,
        partitions=tuple(
            replace(
                each,
                leader=draw(st.sampled_from([*each.replicas, NO_LEADER])),
                isr=draw(st.just(each.replicas) | st.just(each.replicas[:1])),
                eligible=draw(st.just(()) | st.just(each.replicas[1:])),
                min_in_sync=draw(st.integers(0, 3)),
                last_leader=draw(st.sampled_from([*each.replicas, NO_LEADER])),
            )
            for each in topic.partitions
        ),
    )


@st.composite
def features(draw: st.DrawFn) -> FinalizedFeatures:
    # Of few epochs, and of one the same levels.
    epoch = draw(st.integers(0, 3))
    return FinalizedFeatures(epoch, {"a": epoch, "é": 2**15 - 1} if epoch else {})


ENTITIES = (
    QuotaEntity(user=EVERY),
    QuotaEntity("u", "c"),
    QuotaEntity("u", EVERY),
    QuotaEntity(EVERY, "c"),
    QuotaEntity(client_id="c"),
    QuotaEntity(ip="::1"),
)


@st.composite
def images(draw: st.DrawFn) -> ClusterImage:
    names = draw(st.sets(st.sampled_from(NAMES)))
    texts = st.text(max_size=4)
    endpoints = st.builds(BrokerEndpoint, texts, texts, st.integers(0, 65535), texts)
    brokers = st.builds(
        BrokerImage,
        st.integers(0, 4),
        st.text(max_size=4),
        st.integers(-1, 65535),
        st.none() | st.text(max_size=3),
        st.integers(-1, 2**62),
        st.booleans(),
        endpoints=st.lists(endpoints, max_size=2).map(tuple),
        envelope_version=st.integers(NO_ENVELOPE, 2**15 - 1),
        features=st.lists(st.builds(Supported, texts, LEVELS, LEVELS), max_size=2).map(tuple),
    )
    return (
        replace(ClusterImage(cluster_id="c"), controller_id=draw(st.integers(-1, 4)))
        .with_brokers(draw(st.lists(brokers, max_size=3)))
        .with_topics([draw(topics(name)) for name in sorted(names)])
        .with_configs(draw(st.dictionaries(RESOURCES, CONFIGS, max_size=3)))
        .with_users(draw(st.dictionaries(texts, CONFIGS, max_size=3)))
        .with_quotas(draw(st.dictionaries(st.sampled_from(ENTITIES), CONFIGS, max_size=4)))
        .with_features(draw(features()))
        .with_acls(draw(st.lists(ACLS, max_size=6).map(acl_set)))
    )


@given(old=images(), new=images())
def test_a_difference_that_is_taken_sent_and_applied_is_the_new_image(
    old: ClusterImage, new: ClusterImage
) -> None:
    sent = encode_delta(ClusterDelta.between(old, new))
    delta = decode_delta(sent)
    assert encode_delta(delta) == sent
    assert delta.applied_to(old) == new.with_features(old.features)


@given(new=images())
def test_from_nothing_it_is_everything(new: ClusterImage) -> None:
    assert (
        decode_delta(encode_delta(ClusterDelta.between(ClusterImage(), new))).applied_to(
            ClusterImage()
        )
        == new
    )


def of_broker(broker: BrokerImage) -> bytes:
    return encode_delta(ClusterDelta.between(ClusterImage(), ClusterImage().with_brokers([broker])))


def test_a_broker_that_knows_no_envelope_is_as_it_was() -> None:
    """A version that does not know the field steps over it, and writes none."""
    broker = BrokerImage(1, "h", envelope_version=7)
    data, plain = of_broker(broker), of_broker(replace(broker, envelope_version=NO_ENVELOPE))
    tag = b"\1\1\2\0\7"  # one field: its number, its size, its value
    assert data == plain[: data.index(tag)] + tag + plain[data.index(tag) + 1 :]
    assert decode_delta(data).brokers == (broker,)
    (read,) = decode_delta(plain).brokers
    assert read.envelope_version == NO_ENVELOPE
    with pytest.raises(ProtocolError):
        decode_delta(data.replace(tag, b"\1\1\2\xff\xff"))


@pytest.mark.parametrize(
    ("sent", "damaged"),
    [
        (b"\2\3\2t", b"\7\3\2t"),  # a type of resource that ends at USER
        (b"\2\3\2t", b"\2\2\2t"),  # MATCH is for filters
        (b"\3\3\0", b"\1\3\0"),  # so is the operation ANY
        (b"\3\3\0", b"\3\1\0"),
        (b"\7User:a", b"\7User a"),
    ],
)
def test_an_acl_that_could_be_none_is_refused(sent: bytes, damaged: bytes) -> None:
    entry = Entry("User:a", "*", Operation.READ, Permission.ALLOW)
    acl = Acl(Pattern(ResourceType.TOPIC, PatternType.LITERAL, "t"), entry)
    new = ClusterImage().with_acls(acl_set([acl]))
    data = encode_delta(ClusterDelta.between(ClusterImage(), new))
    assert decode_delta(data).applied_to(ClusterImage()) == new
    assert data.count(sent) == 1
    with pytest.raises(ProtocolError):
        decode_delta(data.replace(sent, damaged if damaged[0] != 7 else b"\x08\3\2t"))


def test_levels_of_a_later_epoch_stay() -> None:
    """A controller of an earlier kbroker sends none."""
    old = ClusterImage().with_features(FinalizedFeatures(2, {"a": 1}))
    delta = decode_delta(encode_delta(ClusterDelta.between(ClusterImage(), ClusterImage())))
    assert delta.applied_to(old).features == FinalizedFeatures(2, {"a": 1})


def test_one_state_of_many_travels_alone() -> None:
    topic = new_topic_image("t", UUID(int=1), [(0, 1)] * 1000, {"k": "v"})
    old = ClusterImage().with_topics([topic, new_topic_image("u", UUID(int=2), [(0,)], {})])
    moved = replace(topic.partitions[7], leader=1, leader_epoch=1, partition_epoch=1)
    delta = ClusterDelta.between(old, old.with_partitions([moved]))
    assert (delta.topics, delta.partitions, delta.deleted) == ((), (moved,), ())
    assert len(encode_delta(delta)) < 64


def test_one_from_another_image_does_not_fit() -> None:
    topic = new_topic_image("t", UUID(int=1), [(0, 1)], {})
    old = ClusterImage().with_topics([topic])
    (state,) = topic.partitions
    moved = old.with_partitions([replace(state, leader=1, leader_epoch=3, partition_epoch=3)])
    delta = ClusterDelta.between(old, moved)
    for image in (
        ClusterImage(),
        old.with_partitions([replace(state, leader_epoch=4, partition_epoch=4)]),
        old.with_topics([new_topic_image("t", UUID(int=1), [(0, 2)], {})]),
    ):
        with pytest.raises(DeltaMismatchError):
            delta.applied_to(image)
    with pytest.raises(DeltaMismatchError):
        ClusterDelta.between(old, ClusterImage()).applied_to(ClusterImage())


@given(data=st.data())
def test_bytes_that_are_no_difference_are_refused_and_nothing_else_happens(
    data: st.DataObject,
) -> None:
    sent = bytearray(encode_delta(ClusterDelta.between(ClusterImage(), data.draw(images()))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(sent) - 1))
        sent[at] = data.draw(st.integers(0, 255))
    cut = bytes(sent[: data.draw(st.integers(0, len(sent)))])
    try:
        decode_delta(cut)
    except ProtocolError:
        pass
