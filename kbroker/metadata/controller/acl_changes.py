"""CreateAcls and DeleteAcls (KIP-140), and ACLs that another program has written into the store.

Place in the flow: the controller's thread. A change is written to the nodes of its resources with a
notice for each, in one fenced multi, and then published with the image, by which it reaches the
other brokers. Each resource's node is read before it is written, and written under the version that
was read: the tools of Apache Kafka 3.9 may write, too.

Such a tool leaves a notice in one of two folders, which the controller watches. `notices_came`
reads the nodes of the resources that new notices name. Notices of our own are among them; their
nodes hold what the image has, so nothing follows from them. Notices are removed when they have been
here for 15 minutes, or are more than NOTICES_KEPT_MAX: a reader that was there has read them, and
one that comes later reads everything.

On the controller's thread only; no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.limits import ACLS_MAX, MATCHED_ACLS_MAX, SEARCHED_ACLS_MAX
from kbroker.log_lines import first_few
from kbroker.metadata.controller.acl_records import (
    CHANGES,
    FOLDERS,
    acl_path,
    decode_acls,
    decode_notice,
    encode_acls,
    encode_notice,
    notice_number,
    notice_path,
    pattern_at,
)
from kbroker.metadata.store.base import (
    NODE_BYTES_MAX,
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    MultiError,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)
from kbroker.outside_text import printable
from kbroker.security import rights
from kbroker.security.acl_set import NO_ACL_SET, AclSet
from kbroker.security.acls import (
    EVERYONE,
    NO_ACLS,
    WILDCARD,
    Acl,
    Entry,
    Pattern,
    Permission,
    ResourceAcls,
)

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metadata.controller.nodes import MetadataNodes
    from kbroker.metadata.controller.propagation import Propagation
    from kbroker.security.acl_filter import AclFilter

log = logging.getLogger("kbroker.controller")

# Of a resource whose ACLs cannot be read.
CLOSED: Final = ResourceAcls.of([Entry(EVERYONE, WILDCARD, rights.Operation.ALL, Permission.DENY)])
NOTICES_KEPT_MS: Final = 15 * 60_000
NOTICES_KEPT_MAX: Final = 1_000
_WRITES_MAX: Final = 10  # of a change, while other programs write the same nodes

# One for each ACL, in their order: None, or why it was not created.
CreateResults = list[KafkaError | None]
# One for each filter, in their order: the ACLs that it matched and that are gone, or why not.
DeleteResults = list[list[Acl] | KafkaError]


class CreateAcls(NamedTuple):
    """ACLs, of which those that exist stay as they are."""

    acls: tuple[Acl, ...]
    done: Callable[[CreateResults], None]

    def fail(self, error: KafkaError) -> None:
        self.done([error for _ in self.acls])


class DeleteAcls(NamedTuple):
    filters: tuple[AclFilter, ...]
    done: Callable[[DeleteResults], None]

    def fail(self, error: KafkaError) -> None:
        self.done([error for _ in self.filters])


class AclsChanged(NamedTuple):
    """A program has left a notice that ACLs changed."""

    def fail(self, error: KafkaError) -> None:
        pass  # the next notice, or the next load, makes up for it


class _Change(NamedTuple):
    added: frozenset[Entry]
    removed: frozenset[Entry] = frozenset()

    def applied_to(self, acls: ResourceAcls) -> ResourceAcls:
        return acls.without_entries(self.removed).with_entries(self.added)


class AclChanges:
    """See the head of this file."""

    def __init__(self, propagation: Propagation, clock: Clock) -> None:
        self._propagation = propagation
        self._clock = clock
        # The notices that were read, by path, and when; in ms.
        self._notices: dict[str, int] = {}

    @property
    def _acls(self) -> AclSet:
        return self._propagation.image.acls

    def load(self, nodes: MetadataNodes) -> AclSet:
        """All ACLs of the store."""
        self._new_notices(nodes)  # before the nodes: a later change has a notice that is new
        return self._all(nodes.children_data)

    def read(self, store: MetadataStore) -> AclSet:
        """Those of the store, for a broker that has no image of a controller yet: the controller
        needs a right to send it."""
        return self._all(store.children_data)

    def _all(self, children_data: Callable[[str], Mapping[str, Node]]) -> AclSet:
        changed: dict[Pattern, ResourceAcls] = {}
        for (kind, type_), folder in FOLDERS.items():
            try:
                children = children_data(folder)
            except NoNodeError:
                continue
            for name, node in children.items():
                try:
                    pattern = pattern_at(kind, type_, name)
                except DataDirectoryError as error:
                    log.error("%s", error.message)
                    continue
                changed[pattern] = self._decoded(f"{folder}/{name}", node, pattern)
        return NO_ACL_SET.with_changed(changed)

    def handle(self, nodes: MetadataNodes, event: CreateAcls | DeleteAcls) -> Callable[[], None]:
        """The answer to give."""
        if isinstance(event, CreateAcls):
            return partial(event.done, self.create(nodes, event))
        return partial(event.done, self.delete(nodes, event))

    def create(self, nodes: MetadataNodes, event: CreateAcls) -> CreateResults:
        results: CreateResults = []
        added: dict[Pattern, set[Entry]] = {}
        room = ACLS_MAX - len(self._acls)
        for acl in event.acls:
            error = None
            try:
                acl_path(acl.pattern)
            except ValueError as reason:
                error = KafkaError(ErrorCode.INVALID_REQUEST, str(reason))
            if error is None and acl.entry not in self._acls.of(acl.pattern):
                known = added.setdefault(acl.pattern, set())
                if acl.entry not in known:
                    if room:
                        known.add(acl.entry)
                        room -= 1
                    else:
                        error = KafkaError(
                            ErrorCode.POLICY_VIOLATION, f"there are {ACLS_MAX} ACLs, the most"
                        )
            results.append(error)
        changes = {pattern: _Change(frozenset(some)) for pattern, some in added.items() if some}
        failed = self._change(nodes, changes)
        return [
            error or failed.get(acl.pattern) for acl, error in zip(event.acls, results, strict=True)
        ]

    def delete(self, nodes: MetadataNodes, event: DeleteAcls) -> DeleteResults:
        matched = _Matching(self._acls)
        results = [matched.by(each) for each in event.filters]
        removed: dict[Pattern, set[Entry]] = {}
        for some in matched.found.values():
            for acl in some:
                removed.setdefault(acl.pattern, set()).add(acl.entry)
        failed = dict.fromkeys(filter(_is_unwritable, removed), _KEPT)
        changes = {
            pattern: _Change(frozenset(), frozenset(some))
            for pattern, some in removed.items()
            if pattern not in failed
        }
        # A node of ours only becomes smaller; one of another program may be larger than ours.
        failed |= self._change(nodes, changes)
        return [_failed_or(some, failed) for some in results] if failed else results

    def notices_came(self, nodes: MetadataNodes) -> bool:
        """Read the nodes that new notices name, and publish what they hold. True: that is all."""
        named = dict.fromkeys(self._new_notices(nodes))
        paths = {pattern: acl_path(pattern) for pattern in named}
        found = nodes.read(list(paths.values()))
        changed: dict[Pattern, ResourceAcls] = {}
        for pattern, path in paths.items():
            node = found.get(path)
            acls = NO_ACLS if node is None else self._decoded(path, node, pattern)
            if acls != self._acls.of(pattern):
                changed[pattern] = acls
        self._publish(changed, "another program has changed the ACLs of")
        self._forget_notices(nodes)
        return True

    def _decoded(self, path: str, node: Node, pattern: Pattern) -> ResourceAcls:
        """The ACLs of a node that cannot be read are as they were known. An ACL that denies may be
        among them, so where none are known the resource is closed to all but super users."""
        try:
            return decode_acls(path, node.data)
        except DataDirectoryError as error:
            known = self._acls.of(pattern) or CLOSED
            how = "is closed" if known == CLOSED else "has the ACLs that it had"
            log.error("%s %s: %s", printable(pattern.name), how, error.message)
            return known

    def _change(
        self, nodes: MetadataNodes, changes: Mapping[Pattern, _Change]
    ) -> Mapping[Pattern, KafkaError]:
        """Write and publish them; the resources whose node would be too large."""
        if not changes:
            return {}
        for attempt in range(1, _WRITES_MAX + 1):
            units, after, failed = self._units(nodes, changes)
            try:
                nodes.write(units)
            except MultiError as error:
                lost = isinstance(error.cause, BadVersionError | NodeExistsError | NoNodeError)
                if not lost or attempt == _WRITES_MAX:
                    raise
                continue  # another program has written one of them meanwhile
            self._publish(after, "the ACLs have changed of")
            break
        return failed

    def _units(
        self, nodes: MetadataNodes, changes: Mapping[Pattern, _Change]
    ) -> tuple[list[list[Operation]], dict[Pattern, ResourceAcls], dict[Pattern, KafkaError]]:
        paths = {pattern: acl_path(pattern) for pattern in changes}
        found = nodes.read(list(paths.values()))
        units: list[list[Operation]] = []
        after: dict[Pattern, ResourceAcls] = {}
        failed: dict[Pattern, KafkaError] = {}
        for pattern, change in changes.items():
            path, node = paths[pattern], found.get(paths[pattern])
            before = NO_ACLS if node is None else self._decoded(path, node, pattern)
            if node is not None and before == CLOSED and not _is_readable(path, node):
                failed[pattern] = KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the node {path} cannot be read: repair it, or remove it",
                )
                continue
            acls = change.applied_to(before)
            data = encode_acls(acls)
            if len(data) > NODE_BYTES_MAX:
                failed[pattern] = KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"the ACLs of one resource take {len(data)} bytes, and there is room for "
                    f"{NODE_BYTES_MAX}",
                )
                continue
            after[pattern] = acls
            operation = _writing(path, node, acls, data)
            if operation is not None:
                notice = Create(notice_path(pattern), encode_notice(pattern), sequential=True)
                units.append([operation, notice])
        return units, after, failed

    def _publish(self, changed: Mapping[Pattern, ResourceAcls], words: str) -> None:
        if not changed:
            return
        image = self._propagation.image
        self._propagation.publish(image.with_acls(image.acls.with_changed(changed)))
        what = [f"{each.type.name} {each.kind.name} {printable(each.name)}" for each in changed]
        log.info("%s %d resources: %s", words, len(what), first_few(what))

    def _new_notices(self, nodes: MetadataNodes) -> Iterable[Pattern]:
        """The resources that notices name which were not read before: a thousand may be there, and
        one comes with each change."""
        known, there = self._notices, dict[str, int]()
        now_ms = self._clock.monotonic_ms()
        for folder in CHANGES:
            with suppress(NoNodeError):
                for name in nodes.store.children(folder):
                    if notice_number(name) is not None:
                        path = f"{folder}/{name}"
                        there[path] = known.get(path, now_ms)
        found: list[Pattern] = []
        for path, node in nodes.read([each for each in there if each not in known]).items():
            pattern = decode_notice(path, node.data)
            if pattern is None:
                log.warning("a notice about ACLs that cannot be followed: %s", path)
            else:
                found.append(pattern)
        self._notices = there
        return found

    def _forget_notices(self, nodes: MetadataNodes) -> None:
        now_ms = self._clock.monotonic_ms()
        by_number = sorted(self._notices, key=_number_at)
        many = by_number[: max(0, len(by_number) - NOTICES_KEPT_MAX)]
        old = [path for path, ms in self._notices.items() if now_ms - ms >= NOTICES_KEPT_MS]
        gone = list(dict.fromkeys((*many, *old)))
        try:
            nodes.write([Delete(path)] for path in gone)
        except MultiError as error:
            if not isinstance(error.cause, NoNodeError):
                raise
            self._forget_one_by_one(nodes, gone)
        for path in gone:
            del self._notices[path]

    def _forget_one_by_one(self, nodes: MetadataNodes, paths: Iterable[str]) -> None:
        """Another program removes some of them, too."""
        for path in paths:
            try:
                nodes.write([[Delete(path)]])
            except MultiError as error:
                if not isinstance(error.cause, NoNodeError):
                    raise


def _is_readable(path: str, node: Node) -> bool:
    try:
        decode_acls(path, node.data)
    except DataDirectoryError:
        return False
    return True


class _Matching:
    """The ACLs that the filters of one request match, within bounds: a filter has ten bytes, and
    may match all ACLs there are."""

    def __init__(self, acls: AclSet) -> None:
        self.found: dict[AclFilter, list[Acl]] = {}
        self._acls = acls
        self._left = MATCHED_ACLS_MAX
        self._searches_left = SEARCHED_ACLS_MAX

    def by(self, wanted: AclFilter) -> list[Acl] | KafkaError:
        some = self.found.get(wanted)
        if some is None:
            if wanted.is_search:
                if len(self._acls) > self._searches_left:
                    return _TOO_MANY
                self._searches_left -= len(self._acls)
            some = list(islice(wanted.matches_of(self._acls), self._left + 1))
        if len(some) > self._left:
            return _TOO_MANY
        self._left -= len(some)
        self.found[wanted] = some
        return some


_TOO_MANY: Final = KafkaError(
    ErrorCode.POLICY_VIOLATION,
    "the filters of this request match too much: send fewer in one request",
)
_KEPT: Final = KafkaError(
    ErrorCode.INVALID_REQUEST,
    "another program has given an ACL to a name that this broker does not write: remove it there",
)


def _failed_or(
    some: list[Acl] | KafkaError, failed: Mapping[Pattern, KafkaError]
) -> list[Acl] | KafkaError:
    if isinstance(some, KafkaError):
        return some
    return next((failed[acl.pattern] for acl in some if acl.pattern in failed), some)


def _is_unwritable(pattern: Pattern) -> bool:
    try:
        acl_path(pattern)
    except ValueError:
        return True
    return False


def _number_at(path: str) -> int:
    return notice_number(path.rpartition("/")[2]) or 0


def _writing(path: str, node: Node | None, acls: ResourceAcls, data: bytes) -> Operation | None:
    """What makes the node hold these; None: it does, or there are none and no node."""
    if node is None:
        return Create(path, data) if acls else None
    if not acls:
        return Delete(path, node.version)
    return Set(path, data, node.version) if node.data != data else None
