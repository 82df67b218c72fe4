"""Groups from outside: list, describe, read and set their offsets, delete.

Every request about a group goes to its coordinator, which is asked for once and again when it has
moved or still loads, until the client's time-out is over. Owner: the client's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kbroker.errors import ErrorCode, KafkaError
from kbroker.peer import group_messages as messages
from kbroker.peer import share_group_messages as share_messages
from kbroker.peer.address import Address
from kbroker.peer.client import Client
from kbroker.peer.cluster import Ask, Decode
from kbroker.peer.group_messages import (
    Committed,
    DescribedGroup,
    ListedGroup,
    MemberIdentity,
    Unwritten,
)
from kbroker.peer.share_group_messages import DescribedShareGroup, ShareOffset
from kbroker.types import ApiKey, TopicPartition

if TYPE_CHECKING:
    from kbroker.protocol.wire import Reader

Result = TypeVar("Result")

_SILENT: Final = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
_NO_SHARE_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
# Requests that are on the way to one coordinator at a time: their answers fit a socket's buffer.
_IN_FLIGHT_MAX: Final = 20
NO_MEMBER: Final = MemberIdentity()


class Listed(NamedTuple):
    """A group and the broker that coordinates it."""

    coordinator: int
    group: ListedGroup


class Groups:
    """What may be asked about the groups of a client's cluster."""

    def __init__(self, client: Client) -> None:
        self._cluster: Final = client.cluster
        self._coordinators: dict[str, tuple[int, Address]] = {}

    def list_groups(
        self, states: Sequence[str] = (), *, of_all: bool = True, by_name: bool = True
    ) -> list[Listed]:
        """The groups of every broker; those that still load are waited for. Not `of_all`: of those
        that answer. Not `by_name`: in the order in which they came."""
        found = self._cluster.listed_everywhere(
            ApiKey.LIST_GROUPS,
            lambda version: messages.encode_list_groups(version, states),
            messages.decode_list_groups,
            () if of_all else _SILENT,
        )
        wanted = {state.lower() for state in states}
        listed = [Listed(*each) for each in found]
        if wanted:
            listed = [each for each in listed if each.group.state.lower() in wanted]
        return sorted(listed, key=lambda each: each.group.group) if by_name else listed

    def coordinator(self, group: str) -> tuple[int, Address]:
        """The broker's id and where it is."""
        known = self._coordinators.get(group)
        if known is None:
            found = self._cluster.anywhere(
                ApiKey.FIND_COORDINATOR,
                lambda version: messages.encode_find_coordinator(version, group),
                messages.decode_find_coordinator,
            )
            known = found.node_id, Address(found.host, found.port)
            self._coordinators[group] = known
        return known

    def describe(self, group: str) -> DescribedGroup:
        """A group that is not there has the state "Dead", in newer versions GROUP_ID_NOT_FOUND."""
        (described,) = self.at_coordinator(
            group,
            ApiKey.DESCRIBE_GROUPS,
            lambda version: messages.encode_describe_groups(version, [group]),
            messages.decode_describe_groups,
        )
        return described

    def may_describe(self, group: str) -> bool:
        """Whether the client has the right to, at any broker; there may be no such group."""
        try:
            described = self._cluster.ask(
                self._cluster.any_broker(),
                ApiKey.DESCRIBE_GROUPS,
                lambda version: messages.encode_describe_groups(version, [group]),
                messages.decode_describe_groups,
            )
        except KafkaError as error:
            # Rights are looked at first, so it may be described.
            if error.code in messages.COORDINATOR_MOVED:
                return True
            raise
        return all(each.error is not ErrorCode.GROUP_AUTHORIZATION_FAILED for each in described)

    def describe_share(self, group: str) -> DescribedShareGroup | None:
        """None: there is no such share group, or its coordinator has none at all."""
        try:
            return self.at_coordinator(
                group,
                ApiKey.SHARE_GROUP_DESCRIBE,
                lambda version: share_messages.encode_share_group_describe(version, group),
                share_messages.decode_share_group_describe,
            )
        except KafkaError as error:
            if error.code in _NO_SHARE_GROUP:
                return None
            raise

    def share_offsets(self, group: str) -> dict[TopicPartition, ShareOffset]:
        """Where a share group begins to read all that it has begun to."""
        return self.at_coordinator(
            group,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            lambda version: share_messages.encode_share_offsets(version, group),
            share_messages.decode_share_offsets,
        )

    def unwritten(self, group: str) -> Unwritten:
        """Of a group of any kind."""
        return self.at_coordinator(
            group,
            ApiKey.DESCRIBE_GROUPS,
            lambda version: messages.encode_unwritten(version, group),
            messages.decode_unwritten,
        )

    def offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """What the group has committed: of some partitions, or (None) everything there is."""
        asked = None if partitions is None else list(partitions)
        return self.at_coordinator(
            group,
            ApiKey.OFFSET_FETCH,
            lambda version: messages.encode_offset_fetch(version, group, asked),
            messages.decode_offset_fetch,
        )

    def offsets_of_all(
        self, groups: Iterable[Listed]
    ) -> dict[str, dict[TopicPartition, Committed]]:
        """Everything that these groups have committed; a group that cannot be asked is left out."""
        asked = [
            (listed.group.group, self._cluster.brokers[listed.coordinator])
            for listed in groups
            if listed.coordinator in self._cluster.brokers
        ]
        found: dict[str, dict[TopicPartition, Committed]] = {}
        for begin in range(0, len(asked), _IN_FLIGHT_MAX):
            some = asked[begin : begin + _IN_FLIGHT_MAX]
            answers = self._cluster.ask_all([_ask_offsets(*each) for each in some], of_all=False)
            for (group, _), answer in zip(some, answers, strict=True):
                if answer is not None and not isinstance(answer, KafkaError):
                    found[group] = answer
        return found

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int],
        member: MemberIdentity = NO_MEMBER,
    ) -> dict[TopicPartition, ErrorCode]:
        return self.at_coordinator(
            group,
            ApiKey.OFFSET_COMMIT,
            lambda version: messages.encode_offset_commit(version, group, offsets, member),
            messages.decode_offset_commit,
        )

    def delete(self, group: str) -> ErrorCode:
        errors = self.at_coordinator(
            group,
            ApiKey.DELETE_GROUPS,
            lambda version: messages.encode_delete_groups(version, [group]),
            messages.decode_delete_groups,
        )
        return errors[group]

    def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        asked = list(partitions)
        return self.at_coordinator(
            group,
            ApiKey.OFFSET_DELETE,
            lambda version: messages.encode_offset_delete(version, group, asked),
            messages.decode_offset_delete,
        )

    def at_coordinator(
        self,
        group: str,
        api_key: ApiKey,
        encode: Callable[[int], bytes],
        decode: Decode[Result],
        *,
        timeout_ms: int | None = None,
    ) -> Result:
        def attempt() -> Result:
            _, address = self.coordinator(group)
            try:
                return self._cluster.ask(address, api_key, encode, decode, timeout_ms=timeout_ms)
            except KafkaError as error:
                if error.code.retriable:
                    self._coordinators.pop(group, None)
                raise

        return self._cluster.retrying(attempt)


def _ask_offsets(group: str, address: Address) -> Ask:
    return Ask(
        address,
        ApiKey.OFFSET_FETCH,
        lambda version: messages.encode_offset_fetch(version, group, None),
        _offsets_or_none,
    )


def _offsets_or_none(reader: Reader, version: int) -> dict[TopicPartition, Committed] | None:
    """None: this client may not ask for them."""
    try:
        return messages.decode_offset_fetch(reader, version)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return None
        raise
