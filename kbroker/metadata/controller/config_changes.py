"""The settings of brokers, groups and subscriptions to client metrics: decide, write, follow, show.

Place in the flow: as `topic_changes.py`, for resources that are not topics. A broker's settings are
metadata like everything else, so that one day every broker of a cluster reads its own and the
common ones here. Which settings are valid is not known here: `ConfigRules` knows, for the
configuration's package.

A change is written before it is applied anywhere. `follow` gets the image that will be published
next and makes this broker what it says, so that an answer comes when the change has taken effect;
it does not raise, since what is written holds for the next start in any case.

On the controller's thread only; no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode, KafkaError
from kbroker.log_lines import first_few
from kbroker.metadata.controller import records
from kbroker.metadata.controller.decisions import ConfigChange, check_config_bytes
from kbroker.metadata.controller.nodes import MetadataNodes
from kbroker.metadata.controller.propagation import Propagation
from kbroker.metadata.controller.settings_room import SettingsRoom
from kbroker.metadata.image import ConfigKind, ConfigResource

log = logging.getLogger("kbroker.controller")

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ResourceChange(NamedTuple):
    """What becomes of one resource's settings: first `replace` clears them, then `remove` drops
    keys, `set` sets them, `append` and `subtract` change the parts of lists."""

    resource: ConfigResource
    set: Mapping[str, str] = _NOTHING
    remove: frozenset[str] = frozenset()
    replace: bool = False
    append: Mapping[str, str] = _NOTHING
    subtract: Mapping[str, str] = _NOTHING


# The settings that elections go by.
MIN_IN_SYNC: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


def touches(change: ConfigChange | ResourceChange, key: str) -> bool:
    """Whether this may change what the key is for a topic."""
    if isinstance(change, ResourceChange) and change.resource.kind is not ConfigKind.BROKER:
        return False
    return change.replace or key in change.set or key in change.remove


# One for each change, in their order: None, or why it was not made.
ResourceResults = list[KafkaError | None]
ResourcesCallback = Callable[[ResourceResults], None]


class ConfigRules(Protocol):
    """What may be set."""

    def check(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        given: Collection[str] = (),
    ) -> None:
        """Raises KafkaError if a resource may not have these settings: those that are `given` with
        a change as they came, the others as `stored` gave them."""
        ...

    def stored(
        self, resource: ConfigResource, before: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        """The texts that are stored of settings that are set; KafkaError if one cannot be."""
        ...

    def edit_list(
        self, resource: ConfigResource, own: Mapping[str, str], key: str, parts: str, add: bool
    ) -> str:
        """The new value of a list key; KafkaError if it is none."""
        ...


class NoSettings:
    """The rules where nothing has settings of its own: for tests of everything else."""

    def check(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        given: Collection[str] = (),
    ) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there is nothing that can be set")

    def stored(
        self, resource: ConfigResource, before: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        return wanted

    def edit_list(
        self, resource: ConfigResource, own: Mapping[str, str], key: str, parts: str, add: bool
    ) -> str:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key} is no list")


def plan_change(
    before: Mapping[str, str], change: ResourceChange, rules: ConfigRules
) -> dict[str, str] | KafkaError:
    """The settings that a resource has afterwards, or why they may not be so."""
    configs = {} if change.replace else dict(before)
    for name in change.remove:
        configs.pop(name, None)
    configs.update(change.set)
    try:
        for key, parts in change.append.items():
            configs[key] = rules.edit_list(change.resource, before, key, parts, True)
        for key, parts in change.subtract.items():
            configs[key] = rules.edit_list(change.resource, before, key, parts, False)
        if configs:
            check_config_bytes(configs)
        records.config_path(change.resource)
        rules.check(change.resource, configs, change.set.keys())
        if change.set:
            configs.update(rules.stored(change.resource, before, change.set))
            check_config_bytes(configs)
    except ValueError as error:
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    except KafkaError as error:
        return error
    return configs


class ConfigChanges:
    """See the head of this file."""

    def __init__(self, propagation: Propagation, rules: ConfigRules) -> None:
        self._propagation = propagation
        self._rules = rules

    def alter(
        self, nodes: MetadataNodes, changes: Sequence[ResourceChange], validate_only: bool
    ) -> ResourceResults:
        """Each change is made or not for itself; a later one of a resource builds on the former."""
        image = self._propagation.image
        planned: dict[ConfigResource, Mapping[str, str]] = {}
        results: ResourceResults = []
        room = SettingsRoom(image)
        for change in changes:
            before = planned.get(change.resource, image.configs_of(*change.resource))
            plan = plan_change(before, change, self._rules)
            if isinstance(plan, KafkaError):
                results.append(plan)
                continue
            refused = room.take(before, plan)
            results.append(refused)
            if refused is not None:
                continue
            if plan != before:
                planned[change.resource] = plan
        if planned and not validate_only:
            nodes.set_resource_configs(planned)
            self._propagation.configure(planned)
            what = [f"{r.kind.name.lower()} {r.name or '(every one)'}" for r in planned]
            log.info("settings of %d have changed: %s", len(what), first_few(what))
        return results
