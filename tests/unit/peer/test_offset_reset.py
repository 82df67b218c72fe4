"""Groups whose offsets may be set: those without members, of whichever type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.errors import ErrorCode, KafkaError, UserError
from kbroker.peer.groups import Groups
from kbroker.peer.offset_reset import check_idle
from kbroker.peer.versions import VERSIONS
from kbroker.protocol import messages as tables
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader
from kbroker.types import ApiKey

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


class FakeCluster:
    """One coordinator, and its answers; an API without one is not known there."""

    def __init__(self, answers: Mapping[ApiKey, Any]) -> None:
        self._answers = answers

    def retrying(self, attempt: Callable[[], Any]) -> Any:
        return attempt()

    def anywhere(self, *_: Any) -> Any:
        return SimpleNamespace(node_id=1, host="a", port=1)

    def ask(
        self, address: Any, api_key: ApiKey, encode: Callable[[int], bytes],
        decode: Callable[[Reader, int], Any], **_: Any,
    ) -> Any:  # fmt: skip
        if api_key not in self._answers:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, api_key.label)
        version = VERSIONS[api_key][1]
        assert encode(version)
        body = self._answers[api_key].encode(version)
        return decode(Reader(body, flexible=is_flexible(api_key, version)), version)


def check(**found: Any) -> None:
    """The group is found with these requests, and by the others not."""
    answers = {
        ApiKey.DESCRIBE_GROUPS: of_table(tables.describe_groups, NOT_FOUND, "Dead"),
        ApiKey.CONSUMER_GROUP_DESCRIBE: of_table(tables.consumer_group_describe, NOT_FOUND),
        ApiKey.SHARE_GROUP_DESCRIBE: of_table(tables.share_group_describe, NOT_FOUND),
    } | {ApiKey[name.upper()]: response for name, response in found.items()}
    client: Any = SimpleNamespace(cluster=FakeCluster(answers))
    check_idle(Groups(client), "g")


def of_table(table: Any, code: ErrorCode, state: str = "", *members: Any) -> Any:
    group = table.DescribedGroup(
        error_code=int(code), group_id="g", group_state=state, members=[*members]
    )
    return table.Response(groups=[group])


def classic_member() -> Any:
    return tables.describe_groups.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
    )


def consumer_member() -> Any:
    table = tables.consumer_group_describe
    nothing = table.Assignment(topic_partitions=[])
    return table.Member(
        member_id="m", member_epoch=3, client_id="c", client_host="/h",
        subscribed_topic_names=["t"], assignment=nothing, target_assignment=nothing,
    )  # fmt: skip


def test_a_group_that_is_not_there_is_idle() -> None:
    check()


def test_a_group_of_a_classic_consumer() -> None:
    check(describe_groups=of_table(tables.describe_groups, ErrorCode.NONE, "Empty"))
    members = of_table(tables.describe_groups, ErrorCode.NONE, "Stable", classic_member())
    with pytest.raises(UserError, match="is Stable with 1 members -> stop its consumers"):
        check(describe_groups=members)


def test_a_group_of_the_consumer_protocol() -> None:
    """DescribeGroups has no such group."""
    table = tables.consumer_group_describe
    check(consumer_group_describe=of_table(table, ErrorCode.NONE, "Empty"))
    with pytest.raises(UserError, match="is Assigning with 1 members -> stop its consumers"):
        check(
            consumer_group_describe=of_table(table, ErrorCode.NONE, "Assigning", consumer_member())
        )


def test_a_share_group_commits_nothing() -> None:
    response = of_table(tables.share_group_describe, ErrorCode.NONE, "Empty")
    with pytest.raises(UserError, match="is a share group, which commits no offsets"):
        check(share_group_describe=response)


def test_a_group_that_may_not_be_described_is_not_idle() -> None:
    refused = of_table(tables.consumer_group_describe, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="group 'g'") as raised:
        check(consumer_group_describe=refused)
    assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
