"""The configuration as it holds now: what the broker started with, under what is set at run time.

Place in the flow: the broker asks `load` for the metadata store's settings as soon as it is open,
so that everything comes up with the right values; from then on the controller calls `follow` with
every image whose settings may have changed, before it publishes it and answers. Parts
that react to a change (thread pools, bounds of connections, logs) are called in turn with the old
and the new configuration; one that fails is a line in the log and does not keep the others back,
since what is stored holds at the next start in any case. It is called again until it works: it may
have lacked memory or a thread (`on_failure`, `try_again`).

`check`, `stored` and `edit_list` are the controller's `ConfigRules`.

`load` on the thread that starts the broker, the rest on the controller's; `config` may be read by
any thread. No lock: the configuration is replaced by one reference.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from kbroker.config import TopicConfig, dynamic
from kbroker.config.agreed import AGREED, agreed_settings
from kbroker.config.definition import LISTENER_PREFIX, find_broker_key, of_a_listeners_tls
from kbroker.errors import ConfigError, ErrorCode, KafkaError
from kbroker.metadata.controller.config_nodes import load_resource_configs
from kbroker.metadata.controller.partition_states import ElectionRules
from kbroker.metadata.image import ConfigKind, ConfigResource
from kbroker.server.lifecycle import nothing
from kbroker.server.sealed_settings import SealedSettings

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.metadata.store.base import MetadataStore

logger: Final = logging.getLogger("kbroker.config")

# Called with the configuration before and after; may raise.
Reaction = Callable[["BrokerConfig", "BrokerConfig"], None]


class DynamicConfig:
    """See the head of this file."""

    def __init__(
        self,
        started: BrokerConfig,
        on_failure: Callable[[], None] = nothing,
        judge: Callable[[BrokerConfig], None] | None = None,
    ) -> None:
        """`on_failure` is called when a reaction could not follow; by default that is left so until
        the next change. `judge` raises a ConfigError for a configuration of this broker that could
        not be followed, before it is stored."""
        self.config = started
        self.started = started
        self._sealed = SealedSettings(started)
        self._own = ConfigResource(ConfigKind.BROKER, str(started.node_id))
        self._every = ConfigResource(ConfigKind.BROKER, "")
        self._held: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})
        self._reactions: list[tuple[str, Reaction]] = []
        # What could not follow, and the configuration that it followed last.
        self._lagging: dict[str, BrokerConfig] = {}
        self._said: dict[str, str] = {}  # why, as the log has it
        self._on_failure: Final = on_failure
        self._judge: Final = judge

    def add(self, what: str, reaction: Reaction) -> None:
        """`reaction` does something about changes from now on; `what` names it in the log."""
        self._reactions.append((what, reaction))

    def load(self, store: MetadataStore) -> None:
        """What the store holds for this broker and for every one."""
        loaded = load_resource_configs(store, [ConfigKind.BROKER])
        self._change(loaded.get(self._every, {}), loaded.get(self._own, {}))

    def follow(self, image: ClusterImage) -> None:
        """Be what this image says; does not raise."""
        self._change(image.configs_of(*self._every), image.configs_of(*self._own))

    def _change(self, every: Mapping[str, str], own: Mapping[str, str]) -> None:
        if (every, own) == self._held:
            return
        self._held = (dict(every), dict(own))
        every, troubles = self._sealed.opened(every)
        own, others = self._sealed.opened(own)
        before = self.config
        self.config, errors = dynamic.with_overrides(self.started, every, own)
        for trouble in (*troubles, *others, *(error.message for error in errors)):
            logger.warning("a setting made at run time is left out: %s", trouble)
        self._notify_changes(before)
        self._warn_of_own(every, own)
        for name, reaction in self._reactions:
            self._react(name, reaction, self._lagging.get(name, before))

    def _react(self, what: str, reaction: Reaction, before: BrokerConfig) -> None:
        try:
            reaction(before, self.config)
        except Exception as error:
            if self._said.get(what) != str(error):  # the same is not said once a second
                logger.exception("%s cannot follow the new configuration", what)
            self._said[what] = str(error)
            self._lagging[what] = before
            self._on_failure()
        else:
            self._lagging.pop(what, None)
            self._said.pop(what, None)

    def try_again(self) -> None:
        """What could not follow tries again: it may have lacked memory or a thread."""
        for name, reaction in self._reactions:
            if name in self._lagging:
                self._react(name, reaction, self._lagging[name])

    @property
    def lagging(self) -> list[str]:
        """The parts that could not follow the configuration yet; any thread."""
        return sorted(self._lagging)

    def _warn_of_own(self, every: Mapping[str, str], own: Mapping[str, str]) -> None:
        """Of settings for this broker alone on which all should agree."""
        if agreed := [name for name in AGREED if name in own]:
            others, _ = dynamic.with_overrides(self.started, every, {})
            ours, theirs = agreed_settings(self.config), agreed_settings(others)
            for name in agreed:
                if ours[name] != theirs[name]:
                    logger.warning(
                        "%s is %s at this broker alone, and %s without its own setting: brokers"
                        " should agree -> set it for all of them, or remove it here",
                        name,
                        ours[name],
                        theirs[name],
                    )

    def _notify_changes(self, before: BrokerConfig) -> None:
        names = sorted({*before.set_names(), *self.config.set_names()})
        changed, idle = [], []
        for name in names:
            key = find_broker_key(name)
            value = self.config.setting(name, self.config.source(name))
            if value == before.setting(name, before.source(name)):
                continue
            text = "default" if value is None else value.text
            changed.append(f"{name}={'(hidden)' if key is None or key.sensitive else text}")
            if key is None or not key.supported or not self._has_effect(name, key.name):
                idle.append(name)
        if changed:
            logger.info("configuration: %s", ", ".join(changed))
        if idle:
            logger.warning("settings without effect in this version: %s", ", ".join(idle))

    def _has_effect(self, name: str, key: str) -> bool:
        """With a listener's prefix: keys of TLS, if the listener speaks it."""
        return name == key or any(
            name == f"{LISTENER_PREFIX}{each.lower()}.{key}" and of_a_listeners_tls(name)
            for each in self.config.with_tls
        )

    def election_rules(self, topic: TopicImage) -> ElectionRules:
        """What the settings of this topic say about its elections, now."""
        config = TopicConfig(self.config, topic.configs)
        return ElectionRules(
            config["min.insync.replicas"], config["unclean.leader.election.enable"]
        )

    # --- the controller's rules -------------------------------------------------------------------

    def check(
        self,
        resource: ConfigResource,
        configs: Mapping[str, str],
        given: Collection[str] = (),
    ) -> None:
        """Raises KafkaError if a resource may not have these settings."""
        if resource.kind is ConfigKind.GROUP:
            dynamic.check_group(self.config, configs)
        elif resource.kind is ConfigKind.CLIENT_METRICS:
            dynamic.check_client_metrics(configs)
        else:
            # Texts that came with the change are judged as they came, and not decrypted.
            stored = {name: text for name, text in configs.items() if name not in given}
            opened, _ = self._sealed.opened(stored)
            configs = {**opened, **{name: configs[name] for name in given if name in configs}}
            source = dynamic.THIS_BROKER if resource.name else dynamic.EVERY_BROKER
            config = dynamic.check_broker(self.config, source, configs)
            if resource in (self._own, self._every):
                self._check_sasl(config)
            if self._judge is not None and resource in (self._own, self._every):
                self._check_here(config, configs)

    @staticmethod
    def _check_sasl(config: BrokerConfig) -> None:
        """Without a login no client could take such settings back."""
        if (trouble := dynamic.sasl_trouble(config)) is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, trouble.message)

    def _check_here(self, config: BrokerConfig, configs: Mapping[str, str]) -> None:
        """By the files of this broker, which others do not see."""
        if self._judge is None or not any(map(of_a_listeners_tls, configs)):
            return
        try:
            self._judge(config)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None

    def stored(
        self, resource: ConfigResource, before: Mapping[str, str], wanted: Mapping[str, str]
    ) -> Mapping[str, str]:
        """Passwords of brokers are stored encrypted, or not at all."""
        return self._sealed.stored(before, wanted) if resource.kind is ConfigKind.BROKER else wanted

    def edit_list(
        self, resource: ConfigResource, own: Mapping[str, str], key: str, parts: str, add: bool
    ) -> str:
        """The new value of a list key of a broker; the others have none that can be edited."""
        if resource.kind is not ConfigKind.BROKER:
            raise dynamic.no_list(key, add)
        return dynamic.edit_broker_list(own, key, parts, add)
