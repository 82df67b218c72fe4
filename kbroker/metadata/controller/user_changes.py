"""The settings of users, clients and addresses: decided, written, and published; and read again
where others wrote them.

Place in the flow: as `config_changes.py`, on the controller's thread. A node may be written by
Apache Kafka's tools as well, in ZooKeeper, while no kbroker knows of it. So a change builds on the
node as it is, is written only if it still is so, and otherwise begins again; and a notice that is
not our own has the named entities read again.

On the controller's thread only; no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from kbroker.errors import DataDirectoryError, ErrorCode, KafkaError
from kbroker.limits import USER_CHANGE_TRIES_MAX
from kbroker.log_lines import first_few
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.planned_tree import PlannedTree
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.controller.settings_room import SettingsRoom
from kbroker.metadata.controller.user_nodes import (
    UserNode,
    load_entity,
    load_quotas,
    load_users,
    noticed,
    notices,
    writing_notices,
    writing_user,
)
from kbroker.metadata.image import NO_CONFIGS, ClusterImage
from kbroker.metadata.store.base import (
    BadVersionError,
    MetadataStore,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
)
from kbroker.outside_text import printable
from kbroker.quota.entities import QuotaEntity

log = logging.getLogger("kbroker.controller")

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_OVERTAKEN: Final = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)


class UserChange(NamedTuple):
    """What becomes of one user's settings: `remove` drops keys, which have to be there, and `set`
    sets them."""

    name: str
    set: Mapping[str, str] = _NOTHING
    remove: frozenset[str] = frozenset()

    @property
    def entity(self) -> QuotaEntity:
        return QuotaEntity(user=self.name)


class QuotaChange(NamedTuple):
    """What becomes of an entity's quotas; keys to remove may be there or not."""

    entity: QuotaEntity
    set: Mapping[str, str] = _NOTHING
    remove: frozenset[str] = frozenset()


# One for each change, in their order: None, or why it was not made.
UserResults = list[KafkaError | None]
UsersCallback = Callable[[UserResults], None]


@dataclass(slots=True)
class _Plan:
    """What a request comes to, for the nodes as they were read."""

    results: UserResults = field(default_factory=list)
    units: list[list[Operation]] = field(default_factory=list)
    changed: dict[QuotaEntity, Mapping[str, str]] = field(default_factory=dict)


class UserChanges:
    """See the head of this file."""

    def __init__(self, propagation: Propagation, *, has_notices: bool) -> None:
        """`has_notices`: the store is ZooKeeper, which others write to."""
        self._propagation = propagation
        self._has_notices = has_notices
        self._known: set[int] = set()  # the notices that were written, or read

    def alter(
        self, nodes: MetadataNodes, changes: Sequence[UserChange | QuotaChange]
    ) -> UserResults:
        """Each change is made or not for itself; no two are of one user or entity."""
        for _ in range(USER_CHANGE_TRIES_MAX):
            plan = self._plan(nodes.store, changes)
            if not plan.units and not plan.changed:
                return plan.results
            units, own = list(plan.units), set[int]()
            if self._has_notices:
                # After the users, so that what is noticed is there.
                noted, own = writing_notices(notices(nodes.store), plan.changed)
                units += [[each] for each in noted]
            try:
                nodes.write(units)
            except MultiError as error:
                if isinstance(error.cause, _OVERTAKEN):
                    continue
                raise
            self._known |= own
            self._publish(plan.changed)
            log.info("settings have changed of %s", _names(plan.changed))
            return plan.results
        message = "Others change the same users or quotas all the time; try again."
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def _plan(self, store: MetadataStore, changes: Sequence[UserChange | QuotaChange]) -> _Plan:
        plan, room, tree = _Plan(), SettingsRoom(self._propagation.image), PlannedTree(store)
        for change in changes:
            try:
                node = load_entity(tree, change.entity)
                after = _changed(node, change)
                refused = room.take(node.settings, after)
                if refused is not None:
                    raise refused
            except KafkaError as error:
                plan.results.append(error)
                continue
            except ValueError as error:
                plan.results.append(KafkaError(ErrorCode.INVALID_REQUEST, str(error)))
                continue
            except DataDirectoryError as error:
                plan.results.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.message))
                continue
            plan.results.append(None)
            if after != node.settings or node.earlier is not None:
                operations = writing_user(tree, node, after)
                tree.note(operations)
                plan.units.append(operations)
            # The node may have it already: by another program, or by a try that failed half way.
            if after != self._propagation.image.quota_settings(change.entity):
                plan.changed[change.entity] = after
        return plan

    def read_into(self, image: ClusterImage, store: MetadataStore) -> ClusterImage:
        """The image with all users and quotas of the store."""
        if self._has_notices:
            # Before the nodes: what changes in between is read again.
            self._known = set(notices(store))
        return image.with_all_users(load_users(store)).with_all_quotas(load_quotas(store))

    def notices_came(self, nodes: MetadataNodes) -> bool:
        """Follow what others have noted. False: it is about something else, too."""
        there = set(notices(nodes.store))
        new, self._known = there - self._known, there
        if not new:
            return True
        entities = set(noticed(nodes.store, sorted(new)))
        changed: dict[QuotaEntity, Mapping[str, str]] = {}
        for entity in entities:
            if entity is None:
                return False
            try:
                changed[entity] = load_entity(nodes.store, entity).settings
            except (DataDirectoryError, ValueError) as error:
                log.error("the settings of %s are left out: %s", entity, error)
                changed[entity] = NO_CONFIGS
        self._publish(changed)
        log.info("settings have changed in the store of %s", _names(changed))
        return True

    def _publish(self, changed: Mapping[QuotaEntity, Mapping[str, str]]) -> None:
        self._propagation.publish(self._propagation.image.with_quotas(changed))


def _names(changed: Mapping[QuotaEntity, Mapping[str, str]]) -> str:
    return first_few(sorted(printable(str(entity)) for entity in changed))


def _changed(node: UserNode, change: UserChange | QuotaChange) -> dict[str, str]:
    missing = change.remove - node.settings.keys()
    if missing and isinstance(change, UserChange):
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND)
    after = {key: value for key, value in node.settings.items() if key not in change.remove}
    return {**after, **change.set}
