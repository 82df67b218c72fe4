"""The version tables against kio's schemas, and against a release of Apache Kafka."""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from kbroker.protocol import cold
from kbroker.protocol.versions import (
    FLEXIBLE_SINCE,
    SERVED,
    is_flexible,
    request_header_version,
    response_header_version,
)
from kbroker.types import ApiKey

# key: (lowest, highest) of Apache Kafka 4.3.0's own answer, for what we serve of it.
KAFKA_4_3 = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    10: (0, 6),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    22: (0, 5),
    32: (1, 4),
    60: (0, 2),
}


def test_a_range_is_that_of_the_release_or_absent() -> None:
    assert {int(k): (r.advertised_min, r.max) for k, r in SERVED.items()} == KAFKA_4_3


def test_membership() -> None:
    assert 3 in SERVED[ApiKey.PRODUCE]
    assert 2 not in SERVED[ApiKey.PRODUCE]
    assert 14 not in SERVED[ApiKey.PRODUCE]


@pytest.mark.parametrize("key", sorted(api_key_map))
def test_headers_of_every_version_that_kio_knows(key: int) -> None:
    for version, kinds in schema_name_map[api_key_map[key]].items():
        for kind, module in (
            (EntityType.request, cold.request_module),
            (EntityType.response, cold.response_module),
        ):
            if kind not in kinds:
                continue
            suffix = "Request" if kind is EntityType.request else "Response"
            message = getattr(module(key, version), ApiKey(key).label + suffix)
            assert is_flexible(key, version) == message.__flexible__
            header = int(message.__header_schema__.__version__)
            of = request_header_version if kind is EntityType.request else response_header_version
            assert of(key, version) == header, (key, version, kind)


def test_every_api_has_a_threshold() -> None:
    assert set(FLEXIBLE_SINCE) == set(ApiKey)


def test_the_exceptions() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert request_header_version(ApiKey.API_VERSIONS, 99) == 2
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert request_header_version(999, 7) == 1
    assert response_header_version(999, 7) == 0
