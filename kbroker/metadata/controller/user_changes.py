"""The settings of users: decided, written, and published; and read again where others wrote them.

Place in the flow: as `config_changes.py`, on the controller's thread. A user's node may be written
by Apache Kafka's tools as well, in ZooKeeper, while no kbroker knows of it. So a change builds on
the node as it is, is written only if it still is so, and otherwise begins again; and a notice that
is not our own has the named users read again.

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
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.controller.settings_room import SettingsRoom
from kbroker.metadata.controller.user_nodes import (
    UserNode,
    load_user,
    load_users,
    noticed,
    notices,
    writing_notices,
    writing_user,
)
from kbroker.metadata.image import NO_CONFIGS
from kbroker.metadata.store.base import (
    BadVersionError,
    MetadataStore,
    MultiError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
)

log = logging.getLogger("kbroker.controller")

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_OVERTAKEN: Final = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)


class UserChange(NamedTuple):
    """What becomes of one user's settings: `remove` drops keys, which have to be there, and `set`
    sets them."""

    name: str
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
    users: dict[str, Mapping[str, str]] = field(default_factory=dict)


class UserChanges:
    """See the head of this file."""

    def __init__(self, propagation: Propagation, *, has_notices: bool) -> None:
        """`has_notices`: the store is ZooKeeper, which others write to."""
        self._propagation = propagation
        self._has_notices = has_notices
        self._known: set[int] = set()  # the notices that were written, or read

    def alter(self, nodes: MetadataNodes, changes: Sequence[UserChange]) -> UserResults:
        """Each change is made or not for itself; no two are of one user."""
        for _ in range(USER_CHANGE_TRIES_MAX):
            plan = self._plan(nodes.store, changes)
            if not plan.units:
                return plan.results
            units, own = list(plan.units), set[int]()
            if self._has_notices:
                # After the users, so that what is noticed is there.
                noted, own = writing_notices(notices(nodes.store), plan.users)
                units += [[each] for each in noted]
            try:
                nodes.write(units)
            except MultiError as error:
                if isinstance(error.cause, _OVERTAKEN):
                    continue
                raise
            self._known |= own
            self._publish(plan.users)
            log.info("users have changed: %s", first_few(sorted(plan.users)))
            return plan.results
        message = "Others change the same users all the time; try again."
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def _plan(self, store: MetadataStore, changes: Sequence[UserChange]) -> _Plan:
        plan, room = _Plan(), SettingsRoom(self._propagation.image)
        for change in changes:
            try:
                node = load_user(store, change.name)
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
            plan.units.append(writing_user(store, node, after))
            plan.users[change.name] = after
        return plan

    def load(self, store: MetadataStore) -> Mapping[str, Mapping[str, str]]:
        """All users, for an image that is made of the store."""
        if self._has_notices:
            # Before the users: what changes in between is read again.
            self._known = set(notices(store))
        return load_users(store)

    def notices_came(self, nodes: MetadataNodes) -> bool:
        """Follow what others have noted. False: it is about something else than users, too."""
        there = set(notices(nodes.store))
        new, self._known = there - self._known, there
        if not new:
            return True
        names = set(noticed(nodes.store, sorted(new)))
        if None in names:
            return False
        changed: dict[str, Mapping[str, str]] = {}
        for name in names:
            if name is None:
                continue
            try:
                changed[name] = load_user(nodes.store, name).settings
            except (DataDirectoryError, ValueError) as error:
                log.error("a user is left out: %s", error)
                changed[name] = NO_CONFIGS
        self._publish(changed)
        log.info("users have changed in the store: %s", first_few(sorted(changed)))
        return True

    def _publish(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        self._propagation.publish(self._propagation.image.with_users(changed))


def _changed(node: UserNode, change: UserChange) -> dict[str, str]:
    missing = change.remove - node.settings.keys()
    if missing:
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND)
    after = {key: value for key, value in node.settings.items() if key not in change.remove}
    return {**after, **change.set}
