"""A draft as parts that are written one after the other, each as one batch.

A log takes no batch of more than `max.message.bytes`, 1,048,588 as it comes, and the target of a
group of ten thousand members is more. Most drafts are one part, which is written all or not at all.

Of several, the log may have only the first, after a failover or an error. So the group's epoch is
in the first, where it changes, and that of the target has its place after the members' targets: in
between the group's epoch is the later one, and the next heartbeat finds another target. Partitions
have one owner all the time, whatever the targets are (`reconciliation.py`). Pure; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kbroker.coordinator.consumer_group.images import (
    Change,
    CurrentImage,
    GroupImage,
    Kind,
    MemberImage,
    PatternImage,
    TargetEpoch,
)

if TYPE_CHECKING:
    from kbroker.coordinator.consumer_group.drafts import DraftOf

PART_BYTES: Final = 500_000
# Of records that are to be one batch, whatever they are.
BATCH_BYTES_MAX: Final = 900_000
_BESIDE_BYTES: Final = 20  # of a record, around its key and value
_RECORD_BYTES: Final = 150  # about, with a key of middle length and no lists
_TOPIC_BYTES: Final = 20
_PARTITION_BYTES: Final = 5  # and its epoch, of a byte or two each, or four


def parts_of(
    draft: DraftOf[Any],
    group_id: str,
    bytes_of: Callable[[Any], int] | None = None,
    first: int = Kind.GROUP,
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """The changes of each part, and what takes them back, in its order.

    Of groups of another protocol: `bytes_of` says how long about the record of a change is, but for
    the group's id, and `first` is the kind that comes first."""
    changes = draft.changes
    sizes: list[int] = []
    if len(changes) > 1:
        sizes = [len(group_id) + (bytes_of or _bytes)(change) for change in changes]
    if sum(sizes) <= PART_BYTES:
        yield changes, draft.undo
        return
    before: dict[tuple[int, str], Any] = {}
    for undo in reversed(draft.undo):
        before.setdefault((undo.kind, undo.key), undo)
    part: list[Any] = []
    size = 0
    in_order = sorted(zip(changes, sizes, strict=True), key=lambda each: each[0].kind != first)
    for change, bytes_more in in_order:
        if part and size + bytes_more > PART_BYTES:
            yield _with_undo(part, before)
            part, size = [], 0
        size += bytes_more
        part.append(change)
    yield _with_undo(part, before)


def fits(records: Iterable[tuple[bytes, bytes | None]]) -> bool:
    """Whether the log takes them as one batch."""
    sizes = (len(key) + len(value or b"") + _BESIDE_BYTES for key, value in records)
    return sum(sizes) <= BATCH_BYTES_MAX


def _with_undo(
    part: list[Any], before: dict[tuple[int, str], Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    undo = [before[change.kind, change.key] for change in reversed(part)]
    return tuple(part), tuple(undo)


def _bytes(change: Change) -> int:
    """About how long its record is."""
    value = change.value
    size = _RECORD_BYTES + len(change.key)
    if value is None or isinstance(value, GroupImage | TargetEpoch):
        return size
    if isinstance(value, MemberImage):
        texts = (value.instance_id, value.rack_id, value.client_id, value.client_host)
        size += len(value.pattern) + sum(len(text or "") for text in texts)
        return size + sum(map(len, value.topics)) + 2 * len(value.topics)
    if isinstance(value, PatternImage):
        return size + sum(map(len, value.topics)) + 2 * len(value.topics)
    if isinstance(value, CurrentImage):
        for part in (value.assigned, value.revoking):
            size += sum(_TOPIC_BYTES + 2 * _PARTITION_BYTES * len(some) for some in part.values())
        return size
    return size + sum(_TOPIC_BYTES + _PARTITION_BYTES * len(some) for some in value.values())
