"""UpdateFeatures (57): the levels of features, for the whole cluster (KIP-584).

The controller decides; `metadata/controller/feature_changes.py` says what it refuses. All updates
of a request are made, or none: then the error is that of the request. A request of version 0 says
with a flag that a level may be lowered, later ones with a type of upgrade.

Any handler thread, then the controller's. Holds no lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.controller.feature_changes import FeatureUpdate, UpgradeType
from kbroker.protocol import messages

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.update_features import FeatureUpdateKey, Request, Response

_SINCE_TYPE: Final = 1


def handle(services: Services, call: Call[Request]) -> None:
    request = call.message
    updates = [_update(each, call.version) for each in request.feature_updates]

    def done(error: KafkaError | None) -> None:
        if error is None:
            call.answer(_response(call, ErrorCode.NONE, None))
        else:
            call.fail(error.code, error.message)

    services.controller.update_features(updates, request.validate_only, done)


def _update(key: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = key.upgrade_type
    if version < _SINCE_TYPE:
        kind = UpgradeType.SAFE_DOWNGRADE if key.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(key.feature, key.max_version_level, kind)


def _response(call: Call[Request], code: ErrorCode, words: str | None) -> Response:
    table = messages.update_features
    done = call.message.feature_updates if code is ErrorCode.NONE else ()
    results = [
        table.UpdatableFeatureResult(
            # Apache Kafka has the name of the code here.
            feature=each.feature,
            error_code=ErrorCode.NONE,
            error_message=ErrorCode.NONE.name,
        )
        for each in done
    ]
    return table.Response(error_code=code, error_message=words, results=results)


def failure(call: Call[Request], code: ErrorCode, message: str | None) -> Response:
    return _response(call, code, message)
