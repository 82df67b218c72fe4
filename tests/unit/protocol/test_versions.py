"""The version tables against kio's schemas, and against a release of Apache Kafka."""

from __future__ import annotations

import pytest
from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from kbroker.protocol.versions import (
    FLEXIBLE_SINCE,
    NEVER,
    SERVED,
    is_flexible,
    request_header_version,
    response_header_version,
)
from kbroker.types import ApiKey
from perf import wire
from tests.support import schemas
from tests.support.source_tree import enum_members, relative, source_files

# The ranges of Apache Kafka 4.3.0's own answer.
_LISTED = (
    "0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6"
    " 16:0-5 17:0-1 18:0-4 19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2"
    " 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2"
    " 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0"
    " 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 74:0-1 75:0-0 76:1-1"
    " 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0"
    " 90:0-1 91:0-0 92:0-0"
)
KAFKA_4_3 = {
    int(key): tuple(map(int, versions.split("-")))
    for key, versions in (entry.split(":") for entry in _LISTED.split())
}


def test_served_apis_have_the_range_of_that_release() -> None:
    for key, served in SERVED.items():
        assert KAFKA_4_3[int(key)] == (served.advertised_min, served.max), key


def test_membership() -> None:
    assert 3 in SERVED[ApiKey.PRODUCE]
    assert 2 not in SERVED[ApiKey.PRODUCE]
    assert 14 not in SERVED[ApiKey.PRODUCE]


@pytest.mark.parametrize("key", sorted(api_key_map))
def test_headers_of_every_version_that_kio_knows(key: int) -> None:
    for version, kinds in schema_name_map[api_key_map[key]].items():
        for kind, module in (
            (EntityType.request, schemas.request_module),
            (EntityType.response, schemas.response_module),
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


def test_c_and_the_generator_have_the_same_keys_and_thresholds() -> None:
    """In C they stand in one place; perf is a second implementation."""
    in_c = [
        (relative(path), name, value)
        for path in source_files("kbroker", suffixes=(".pyx", ".pxd"))
        for name, value in enum_members(path)
        if name.removeprefix("API_") in ApiKey.__members__ or name in ApiKey.__members__
        or "FLEXIBLE_SINCE" in name
    ]  # fmt: skip
    assert {file for file, _, _ in in_c} == {"kbroker/protocol/_versions.pxd"}
    keys = {name.removeprefix("API_"): value for _, name, value in in_c if "SINCE" not in name}
    keys["API_VERSIONS"] = keys.pop("VERSIONS")
    assert keys == {name: ApiKey[name] for name in keys}
    since = {name.removesuffix("_FLEXIBLE_SINCE"): v for _, name, v in in_c if "SINCE" in name}
    assert since == {name: FLEXIBLE_SINCE[ApiKey[name]] for name in since}
    in_perf = {key: NEVER if v == wire.NEVER else v for key, v in wire.FLEXIBLE_SINCE.items()}
    assert in_perf.items() <= FLEXIBLE_SINCE.items()


def test_the_exceptions() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert request_header_version(ApiKey.API_VERSIONS, 99) == 2
    assert request_header_version(ApiKey.CONTROLLED_SHUTDOWN, 0) == 0
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert request_header_version(999, 7) == 1
    assert response_header_version(999, 7) == 0
