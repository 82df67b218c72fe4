"""ApiVersions: exactly the registry, in every version, and the odd rules of KIP-511."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.handlers import api_versions
from kbroker.handlers.registry import REGISTRY
from kbroker.metadata.features import Feature
from kbroker.protocol.versions import SERVED
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, request_of, written

VERSIONS = range(5)
FEATURES = [
    ("eligible.leader.replicas.version", 0, 0),
    ("group.version", 0, 1),
    ("share.version", 0, 1),
    ("streams.version", 0, 0),
    ("transaction.version", 0, 2),
]


def ask(version: int, name: str = "apache-kafka-java", software: str = "4.3.0") -> object:
    named = {"client_software_name": name, "client_software_version": software}
    return request_of(ApiKey.API_VERSIONS, version, **(named if version >= 3 else {}))


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_exactly_the_registry(version: int) -> None:
    answer = FakeBroker().call(ask(version))
    assert answer.error_code.value == ErrorCode.NONE
    listed = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
    assert listed == {
        int(api.key): (api.advertised_min, api.max_version)
        for api in REGISTRY.apis
        if api.between_brokers is None and api.protocol is None
    }
    assert list(listed) == sorted(listed)


OF_CONSUMER_GROUPS = {68: (0, 1), 69: (0, 1)}
OF_SHARE_GROUPS = {
    76: (1, 1), 77: (1, 1), 78: (1, 2), 79: (1, 2),
    83: (0, 0), 84: (0, 0), 85: (0, 1), 86: (0, 0), 87: (0, 1),
    90: (0, 1), 91: (0, 0), 92: (0, 0),
}  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_apis_of_a_protocol_of_groups_are_listed_while_it_is_served(version: int) -> None:
    """The feature is finalised, and the settings have the protocol; ours alone leaves them out."""
    others = {k.api_key for k in FakeBroker().call(ask(version)).api_keys}
    for level, protocols, listed in (
        (1, "classic,consumer,streams", True),
        (1, "classic,share", False),
        (0, "classic,consumer", False),
    ):
        broker = FakeBroker(overrides=[f"group.coordinator.rebalance.protocols={protocols}"])
        for number in (level, 0, level):
            features = broker.controller.image.features.changed({"group.version": number})
            broker.controller.publish(broker.controller.image.with_features(features))
            answer = broker.call(ask(version))
            found = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
            is_listed = listed and number == 1
            assert found.keys() - others == (OF_CONSUMER_GROUPS.keys() if is_listed else set())
            assert not is_listed or found.items() >= OF_CONSUMER_GROUPS.items()


OF_STREAMS_GROUPS = {88: (0, 0), 89: (0, 0)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("listed", [True, False])
def test_apis_of_streams_groups_are_listed_by_level_and_setting(version: int, listed: bool) -> None:
    others = {k.api_key for k in FakeBroker().call(ask(version)).api_keys}
    protocols = "classic,streams" if listed else "classic,consumer"
    broker = FakeBroker(overrides=[f"group.coordinator.rebalance.protocols={protocols}"])
    image = broker.controller.image
    broker.controller.publish(image.with_features(image.features.changed({"streams.version": 1})))
    found = {k.api_key: (k.min_version, k.max_version) for k in broker.call(ask(version)).api_keys}
    wanted = OF_STREAMS_GROUPS if listed else {}
    assert {key: of for key, of in found.items() if key not in others} == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_apis_of_share_groups_are_listed_by_the_level_alone(version: int) -> None:
    others = {k.api_key for k in FakeBroker().call(ask(version)).api_keys}
    broker = FakeBroker(overrides=["group.coordinator.rebalance.protocols=classic"])
    image = broker.controller.image
    broker.controller.publish(image.with_features(image.features.changed({"share.version": 1})))
    found = {k.api_key: (k.min_version, k.max_version) for k in broker.call(ask(version)).api_keys}
    assert {key: of for key, of in found.items() if key not in others} == OF_SHARE_GROUPS


@pytest.mark.parametrize("unstable", [False, True])
def test_a_level_in_work_is_offered_where_the_settings_say_so(
    unstable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_work = Feature("x.version", 1, ("the first",), in_work=2)
    monkeypatch.setattr(api_versions, "FEATURES", (in_work,))
    broker = FakeBroker(overrides=[f"unstable.feature.versions.enable={str(unstable).lower()}"])
    answer = broker.call(ask(4))
    levels = {each.name: each.max_version for each in answer.supported_features}
    assert levels == {"x.version": 2 if unstable else 1}


# The answer of a running Apache Kafka 4.3.0, key:min-max.
KAFKA = """
0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1
18:0-4 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3
32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1
46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1
69:0-1 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0 85:0-1 86:0-0 87:0-1
88:0-0 89:0-0 90:0-1 91:0-0 92:0-0
"""


def test_the_list_is_part_of_the_coherent_set_of_one_release() -> None:
    answer = FakeBroker().call(ask(4))
    listed = [f"{k.api_key}:{k.min_version}-{k.max_version}" for k in answer.api_keys]
    of_groups = OF_CONSUMER_GROUPS | OF_SHARE_GROUPS | OF_STREAMS_GROUPS
    assert len(listed) == len(SERVED) - len(of_groups)
    assert set(listed) <= set(KAFKA.split())


@pytest.mark.parametrize("version", [3, 4])
def test_a_feature_at_level_0_is_not_among_the_finalized(version: int) -> None:
    """As of an Apache Kafka 4.3.0 whose features are all at level 0."""
    answer = FakeBroker().call(ask(version))
    offered = [
        (each.name, each.min_version, each.max_version) for each in answer.supported_features
    ]
    # A range that begins at 0 is an error to clients that ask in version 3.
    assert offered == ([] if version == 3 else FEATURES)
    assert answer.finalized_features == ()
    assert answer.finalized_features_epoch == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_finalized_features_are_those_of_the_published_image(version: int) -> None:
    broker = FakeBroker()
    image = broker.controller.image
    for epoch, level in ((1, 2), (2, 1), (3, 0)):
        features = broker.controller.image.features.changed({"transaction.version": level})
        broker.controller.publish(image.with_features(features))
        answer = broker.call(ask(version))
        if version < 3:
            continue
        found = [
            (each.name, each.max_version_level, each.min_version_level)
            for each in answer.finalized_features
        ]
        assert answer.finalized_features_epoch == epoch
        assert found == ([("transaction.version", level, level)] if level else [])


def test_an_error_tells_no_features() -> None:
    answer = FakeBroker().call(ask(4, "a!"))
    assert (answer.supported_features, answer.finalized_features_epoch) == ((), -1)


def test_produce_is_listed_lower_than_it_is_served() -> None:
    assert SERVED[ApiKey.PRODUCE].min == 3
    assert SERVED[ApiKey.PRODUCE].advertised_min == 0


@pytest.mark.parametrize("version", [5, 9, 32767, -1])
def test_an_unknown_version_is_answered_unread_in_the_v0_shape(version: int) -> None:
    request = FakeBroker().send(ApiKey.API_VERSIONS, version, b"\xffno message\xff")
    assert request.closed is None
    # Byte for byte what Apache Kafka 4.3.0 sends.
    assert request.answer == bytes.fromhex("002300000001001200000004")


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "software"),
    [
        *[("", ""), ("a!", "1"), ("-a", "1"), ("a-", "1"), ("a b", "1")],
        *[("é", "1"), ("a\n", "1"), ("a", "")],
    ],
)
def test_software_must_look_like_a_name(version: int, name: str, software: str) -> None:
    answer = FakeBroker().call(ask(version, name, software))
    assert answer.error_code.value == ErrorCode.INVALID_REQUEST
    assert answer.api_keys == ()


@pytest.mark.parametrize("name", ["a", "a.b", "a-1.0-SNAPSHOT", "9"])
def test_software_that_does(name: str) -> None:
    assert FakeBroker().call(ask(3, name, name)).error_code.value == ErrorCode.NONE


def test_up_to_v2_the_body_is_empty_and_not_read() -> None:
    assert answer_of(FakeBroker().send(ApiKey.API_VERSIONS, 0, b"zzzz")).api_keys


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_cut_anywhere_closes_the_connection(version: int) -> None:
    body = written(ask(version))
    for size in range(len(body)):
        request = FakeBroker().send(ApiKey.API_VERSIONS, version, body[:size])
        assert request.answer is None
        assert request.closed is not None


@given(version=st.sampled_from(VERSIONS), body=st.binary(max_size=60))
def test_any_bytes_are_answered_or_closed(version: int, body: bytes) -> None:
    request = FakeBroker().send(ApiKey.API_VERSIONS, version, body)
    assert (request.answer is None) != (request.closed is None)
