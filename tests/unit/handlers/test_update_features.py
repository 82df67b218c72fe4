"""UpdateFeatures, versions 0 to 2; the controller's tests have what becomes of the levels."""

from __future__ import annotations

from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError
from kbroker.types import ApiKey
from tests.unit.handlers.support import FakeBroker, part_of, request_of, written

NAME = "transaction.version"
VERSIONS = range(3)


def ask(version: int, *updates: tuple[str, int, int], validate_only: bool = False) -> Any:
    wanted = tuple(
        part_of(
            ApiKey.UPDATE_FEATURES,
            version,
            "FeatureUpdateKey",
            feature=name,
            max_version_level=level,
            **({"allow_downgrade": kind != 1} if version == 0 else {"upgrade_type": kind}),
        )
        for name, level, kind in updates
    )
    more = {"validate_only": validate_only} if version else {}
    return request_of(ApiKey.UPDATE_FEATURES, version, feature_updates=wanted, **more)


def outcome(answer: Any) -> tuple[ErrorCode, str | None]:
    return ErrorCode(answer.error_code.value), answer.error_message


def refused(level: int, reason: str, name: str = NAME) -> tuple[ErrorCode, str]:
    words = f"Invalid update version {level} for feature {name}. {reason}"
    return ErrorCode.INVALID_UPDATE_VERSION, words


@pytest.mark.parametrize("version", VERSIONS)
def test_a_level_is_raised_and_lowered_again(version: int) -> None:
    broker = FakeBroker()
    for epoch, (level, kind) in enumerate(((2, 1), (1, 2)), start=1):
        answer = broker.call(ask(version, (NAME, level, kind)))
        assert outcome(answer) == (ErrorCode.NONE, None)
        if version < 2:
            assert [(r.feature, r.error_code.value) for r in answer.results] == [(NAME, 0)]
        features = broker.controller.image.features
        assert (features.epoch, features.level(NAME)) == (epoch, level)


@pytest.mark.parametrize("version", [1, 2])
def test_an_update_that_is_only_validated_changes_nothing(version: int) -> None:
    broker = FakeBroker()
    answer = broker.call(ask(version, (NAME, 2, 1), validate_only=True))
    assert outcome(answer) == (ErrorCode.NONE, None)
    assert broker.controller.image.features.epoch == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ((NAME, 3, 1), "Local controller only supports versions 0-2"),
        ((NAME, -1, 1), "A feature version cannot be less than 0."),
        (("group.version", 2, 1), "Local controller only supports versions 0-1"),
        (("share.version", 2, 1), "Local controller only supports versions 0-1"),
        (("streams.version", 1, 1), "Local controller does not support this feature."),
        (("nothing", 1, 1), "Local controller does not support this feature."),
        ((NAME, 2, 2), "Can't downgrade to a newer version."),
    ],
)
def test_one_that_is_refused_refuses_all(
    version: int, update: tuple[str, int, int], reason: str
) -> None:
    broker = FakeBroker()
    name, level, _ = update
    answer = broker.call(ask(version, (NAME, 1, 1), update))
    assert outcome(answer) == refused(level, reason, name)
    assert broker.controller.image.features.epoch == 0


@pytest.mark.parametrize("kind", [-1, 0, 4])
def test_a_type_of_upgrade_that_is_none(kind: int) -> None:
    reason = "The controller does not support the given upgrade type."
    assert outcome(FakeBroker().call(ask(1, (NAME, 1, kind)))) == refused(1, reason)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_lowering_must_be_allowed(version: int) -> None:
    broker = FakeBroker()
    broker.call(ask(version, (NAME, 2, 1)))
    reason = (
        "Can't downgrade the version of this feature without setting the upgrade type to either"
        " safe or unsafe downgrade."
    )
    assert outcome(broker.call(ask(version, (NAME, 1, 1)))) == refused(1, reason)


def test_no_update_is_no_error() -> None:
    assert outcome(FakeBroker().call(ask(1))) == (ErrorCode.NONE, None)


def test_trouble_of_the_controller_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FakeBroker()
    trouble = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata store failed.")
    monkeypatch.setattr(broker.controller, "update_features", lambda *args: args[-1](trouble))
    assert outcome(broker.call(ask(1, (NAME, 1, 1)))) == (trouble.code, trouble.message)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_closes_the_connection(version: int) -> None:
    body = written(ask(version, (NAME, 1, 1)))
    for size in range(len(body)):
        request = FakeBroker().send(ApiKey.UPDATE_FEATURES, version, body[:size])
        assert request.answer is None
        assert request.closed is not None
