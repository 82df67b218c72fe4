"""What a controller is given when it is made: its store and session, its rules, its listeners.

Place in the flow: the broker fills these three; nothing of them is set later. A callable here is
called on the controller's thread, unless it says otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from kbroker.clock import Clock
from kbroker.metadata.controller.config_changes import ConfigRules, NoSettings
from kbroker.metadata.controller.decisions import ConfigValidator, ListEditor
from kbroker.metadata.controller.event_loop import EventLoop, MakeLoop
from kbroker.metadata.controller.events import Event
from kbroker.metadata.controller.image_updates import Transport
from kbroker.metadata.controller.partition_states import RulesOf, clean_elections
from kbroker.metadata.controller.propagation import Apply, Show, ignore_image
from kbroker.metadata.controller.registration import Check, Locks, serves_all
from kbroker.metadata.controller.topic_changes import Settings
from kbroker.metadata.image import BrokerImage, new_uuid
from kbroker.metadata.store.base import MetadataStore

Once = Callable[[str, Callable[[], None], int], None]


def never(name: str, call: Callable[[], None], delay_ms: int) -> None:
    """Where no load fails."""


def no_secrets(cluster_id: str) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The metadata store, and this broker as it registers there.

    `locks`: see registration.py. `cluster_id`: a new cluster's, and an old one must have it.
    `secrets` gives what is registered among `broker.settings` and depends on the cluster's id.
    `check` raises a UserError if this broker cannot serve what the cluster writes.
    `new_epochs_at_start` starts a new leader epoch everywhere: for a start after an unclean end,
    when logs may have lost records that consumers have read. `renew` begins a session in place of
    one that is over; None: a session lasts as long as the broker. `loop` is another than one with
    its own thread.
    """

    store: MetadataStore
    broker: BrokerImage
    clock: Clock
    locks: Locks = tuple
    cluster_id: str | None = None
    secrets: Callable[[str], Mapping[str, str]] = no_secrets
    check: Check = serves_all
    new_epochs_at_start: bool = False
    renew: Callable[[], MetadataStore] | None = None
    loop: MakeLoop[Event] = EventLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of decisions. `config`: the broker's own settings, with the defaults of topics;
    `configs`: what other resources than topics may have set; `elections`: what a topic's settings
    say of them. `new_id` makes the id of a topic."""

    config: Settings
    validate_configs: ConfigValidator
    edit_list: ListEditor
    configs: ConfigRules = field(default_factory=NoSettings)
    elections: RulesOf = clean_elections
    new_id: Callable[[], UUID] = new_uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Who is notified. `apply`, `show`, `follow`, `removing`: see propagation.py. Without a
    `transport` no other broker is, and `once` has something called later, by its name; `dice` are
    for the pauses before a message is sent again. `start_is_known` is called when a lossy broker
    has left its in-sync sets."""

    apply: Apply
    show: Show = ignore_image
    follow: Show = ignore_image
    removing: Callable[[], Collection[UUID]] = tuple
    start_is_known: Callable[[], None] = lambda: None
    transport: Transport | None = None
    once: Once = never
    dice: random.Random | None = None

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call, from any thread, when so much time has passed; one call waits at the most where
        there is no other broker."""
        if self.transport is None:
            self.once("controller", call, delay_ms)
        else:
            self.transport.later(delay_ms, call)
