"""errors.py against the schema package's table, and the shape of the messages people read."""

from __future__ import annotations

import pickle

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from kbroker.errors import (
    RETRIABLE,
    AddressInUse,
    ConfigError,
    DataDirectoryError,
    ErrorCode,
    KafkaError,
    MetadataStoreError,
    UsageError,
    UserError,
)
from tests.support.source_tree import enum_members, relative, source_files


def test_every_code_has_kafkas_name_and_number() -> None:
    ours = {int(code): code.name for code in ErrorCode}
    theirs = {int(code): code.name.upper() for code in KioErrorCode}
    assert ours == theirs
    assert sorted(ours) == list(range(-1, 134))


def test_retriable_agrees_code_by_code() -> None:
    assert {int(code) for code in RETRIABLE} == {int(c) for c in KioErrorCode if c.retriable}
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.NONE.retriable


def test_c_has_the_same_numbers_and_one_place_for_them() -> None:
    of_c = {
        (relative(path), name): value
        for path in source_files("kbroker", suffixes=(".pyx", ".pxd"))
        for name, value in enum_members(path)
        if name in ErrorCode.__members__
    }
    assert of_c == {(file, name): ErrorCode[name] for file, name in of_c}
    assert {file for file, _ in of_c} == {"kbroker/core/_error_codes.pxd"}


@pytest.mark.parametrize("number", [-2, 134, 30_000])
def test_an_unknown_number_is_a_server_error(number: int) -> None:
    assert ErrorCode.for_code(number) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.for_code(36) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_kafka_error_says_code_and_message() -> None:
    error = KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms: 'soon' is not a number")
    assert (error.code, error.message) == (40, "retention.ms: 'soon' is not a number")
    assert str(error) == "INVALID_CONFIG (40): retention.ms: 'soon' is not a number"
    bare = KafkaError(ErrorCode.NOT_CONTROLLER)
    assert (bare.message, str(bare)) == ("NOT_CONTROLLER", "NOT_CONTROLLER (41)")


def test_user_error_is_one_line_with_cause_and_fix() -> None:
    error = DataDirectoryError("data directory is\nin use by pid 7", "kbroker stop")
    assert error.message == "data directory is in use by pid 7 -> kbroker stop"
    assert str(error) == "KB1004 data directory is in use by pid 7 -> kbroker stop"
    assert UserError("no fix known").message == "no fix known"


def test_exit_codes_and_identifiers_are_distinct() -> None:
    kinds = [
        UserError,
        UsageError,
        ConfigError,
        AddressInUse,
        DataDirectoryError,
        MetadataStoreError,
    ]
    assert [kind.exit_code for kind in kinds] == [1, 2, 3, 4, 5, 6]
    assert len({kind.ident for kind in kinds}) == len(kinds)


def test_exceptions_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(ConfigError("port: 70000 is too large", "use 1-65535")))
    assert (error.cause, error.fix, error.exit_code) == (
        "port: 70000 is too large", "use 1-65535", 3,
    )  # fmt: skip
