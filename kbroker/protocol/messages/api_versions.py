"""ApiVersions (18): which versions of which API a broker serves."""

from __future__ import annotations

from kbroker.protocol.messages.table import (
    Message,
    Record,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
)
from kbroker.types import ApiKey


class Request(Message, api=ApiKey.API_VERSIONS, versions=(0, 4)):
    client_software_name: str = string(since=3, default="")
    client_software_version: str = string(since=3, default="")


class ApiVersion(Record):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Record):
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Record):
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class Response(Message, api=ApiKey.API_VERSIONS, versions=(0, 4)):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion, default=())
    throttle_time_ms: int = int32(since=1, default=0)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, default=()
    )
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, default=()
    )
    zk_migration_ready: bool = boolean(since=3, tag=3, default=False)
