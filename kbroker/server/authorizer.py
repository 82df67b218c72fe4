"""The broker's authorizer, as its settings ask for one.

Place in the flow: `Broker` makes it first of all when it starts, so that settings that cannot be
are an error in one line and not a broker that allows too much. Both names of Apache Kafka's
authorizer mean the one here: its rules are theirs, and the ACLs of the metadata store are those of
AclAuthorizer.

Not every API asks it yet (`EVERY_API_ASKS`): until each does, a broker with an authorizer does not
start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kbroker.errors import ConfigError
from kbroker.limits import DENIALS_PERIOD_MS
from kbroker.server.audit import audit_of

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.metadata.controller import Controller
    from kbroker.own_thread import OwnThread
    from kbroker.scheduler import Scheduler
    from kbroker.security.acl_set import AclSet
    from kbroker.security.audit import AuditLog
    from kbroker.security.authorizer import AclAuthorizer
    from kbroker.security.denials import Denials

CLASS: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
NAMES: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
# Produce, Fetch and what else C serves do not ask it.
EVERY_API_ASKS: Final = False


class Access:
    """The broker's authorizer and its audit log; None before `make`, and where there is none."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        controller: Callable[[], Controller],
        scheduler: Scheduler,
    ) -> None:
        self.authorizer: AclAuthorizer | None = None
        self.audit: AuditLog | None = None
        self._config = config
        self._clock = clock
        self._controller = controller
        self._scheduler = scheduler

    def make(self) -> None:
        """ConfigError: the settings cannot be."""
        audit = self.audit = audit_of(self._config, self._clock)
        denials = denials_of(self._config, self._clock, audit)
        self.authorizer = authorizer_of(self._config, self._acls, denials)
        if denials is not None:
            self._scheduler.schedule("denials", denials.write, DENIALS_PERIOD_MS)

    def stop(self) -> None:
        """Writes what the audit log has left."""
        if self.audit is not None:
            self.audit.stop()

    @property
    def thread(self) -> OwnThread | None:
        """The audit log's."""
        return None if self.audit is None else self.audit.thread

    def _acls(self) -> AclSet:
        image = self._controller().image
        # Before the first image nothing is known to be without ACLs.
        return image.acls if image.version else closed_set()


@lru_cache(1)
def closed_set() -> AclSet:
    """ACLs that cover every resource, and allow nothing."""
    from kbroker.security.acl_set import NO_ACL_SET
    from kbroker.security.acls import (
        WILDCARD,
        Entry,
        Pattern,
        PatternType,
        Permission,
        ResourceAcls,
    )
    from kbroker.security.rights import Operation, ResourceType

    closed = ResourceAcls.of([Entry(":", WILDCARD, Operation.ALL, Permission.DENY)])
    types = [each for each in ResourceType if each is not ResourceType.ANY]
    everything = (Pattern(each, PatternType.LITERAL, WILDCARD) for each in types)
    return NO_ACL_SET.with_changed(dict.fromkeys(everything, closed))


def denials_of(config: BrokerConfig, clock: Clock, audit: AuditLog | None = None) -> Denials | None:
    """The log of denials; None: there is no authorizer. ConfigError."""
    name = config[CLASS]
    if not name:
        return None
    if name not in NAMES:
        raise ConfigError(f"{CLASS}={name} is not an authorizer of this broker", f"set {NAMES[0]}")
    if not EVERY_API_ASKS:
        raise ConfigError(
            f"{CLASS} is set, and this version does not check the rights of every request yet",
            f"remove {CLASS}, and let only clients that you trust reach the broker",
        )
    from kbroker.security.denials import Denials

    return Denials(clock, None if audit is None else audit.note_denial)


def authorizer_of(
    config: BrokerConfig, acls: Callable[[], AclSet], denials: Denials | None
) -> AclAuthorizer | None:
    """`acls` are those of the moment. ConfigError: a super user is no principal."""
    if denials is None:
        return None
    from kbroker.security.authorizer import AclAuthorizer, Rules, super_users

    try:
        users = super_users(config[SUPER_USERS])
    except ValueError as error:
        raise ConfigError(f"{SUPER_USERS}: {error}", "write User:NAME") from None
    return AclAuthorizer(Rules(users, config[ALLOW_IF_NO_ACL]), acls, denials)
