"""ApiVersions: exactly the registry, in every version, and the odd rules of KIP-511."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from kbroker.handlers.registry import REGISTRY
from kbroker.protocol.versions import SERVED
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, answer_of, request_of, written

VERSIONS = range(5)


def ask(version: int, name: str = "apache-kafka-java", software: str = "4.3.0") -> object:
    named = {"client_software_name": name, "client_software_version": software}
    return request_of(ApiKey.API_VERSIONS, version, **(named if version >= 3 else {}))


@pytest.mark.parametrize("version", VERSIONS)
def test_lists_exactly_the_registry(version: int) -> None:
    answer = FakeBroker().call(ask(version))
    assert answer.error_code.value == ErrorCode.NONE
    listed = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}
    assert listed == {int(api.key): (api.advertised_min, api.max_version) for api in REGISTRY.apis}
    assert list(listed) == sorted(listed)


def test_the_list_is_the_coherent_set_of_one_release() -> None:
    answer = FakeBroker().call(ask(4))
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [
        (0, 0, 13),
        (1, 4, 18),
        (2, 1, 11),
        (3, 0, 13),
        (10, 0, 6),
        (18, 0, 4),
        (19, 2, 7),
        (20, 1, 6),
        (21, 0, 2),
        (22, 0, 5),
        (23, 2, 4),
        (32, 1, 4),
        (33, 0, 2),
        (35, 1, 5),
        (37, 0, 3),
        (44, 0, 1),
        (60, 0, 2),
        (61, 0, 0),
        (74, 0, 1),
        (75, 0, 0),
    ]
    assert answer.supported_features == answer.finalized_features == ()
    assert answer.finalized_features_epoch == -1


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
