"""UpdateFeatures (57): the levels of features are raised or lowered."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)
from kbroker.types import ApiKey


class FeatureUpdateKey(Record):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean(until=0, default=False)
    upgrade_type: int = int8(since=1, default=1)


class Request(Message, api=ApiKey.UPDATE_FEATURES, versions=(0, 2)):
    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean(since=1, default=False)


class UpdatableFeatureResult(Record):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(null=0)


class Response(Message, api=ApiKey.UPDATE_FEATURES, versions=(0, 2)):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(null=0)
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, until=1, default=())
