"""The broker's authorizer, as its settings ask for one, and the look for tokens that are over.

Place in the flow: `Broker` makes it first of all when it starts, so that settings that cannot be
are an error in one line and not a broker that allows too much. Both names of Apache Kafka's
authorizer mean the one here: its rules are theirs, and the ACLs of the metadata store are those of
AclAuthorizer.

C asks it through `hot_rights.py`, which keeps its verdicts there until the ACLs change.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kbroker.errors import ConfigError
from kbroker.limits import DENIALS_PERIOD_MS, VERDICT_SETS_MAX
from kbroker.server.audit import audit_of

if TYPE_CHECKING:
    from kbroker._net import WrappedRequest
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.engine._hot import HotPath
    from kbroker.metadata.controller import Controller
    from kbroker.metadata.image import ClusterImage
    from kbroker.own_thread import OwnThread
    from kbroker.scheduler import Scheduler
    from kbroker.security.acl_set import AclSet
    from kbroker.security.audit import AuditLog
    from kbroker.security.authorizer import AclAuthorizer
    from kbroker.security.denials import Denials
    from kbroker.server.hot_rights import HotRights

    Dispatch = Callable[[WrappedRequest], None]

CLASS: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
TOKEN_SECRET: Final = "delegation.token.secret.key"
TOKEN_CHECK: Final = "delegation.token.expiry.check.interval.ms"
# A shorter interval is allowed, as in Apache Kafka; each look is at all tokens.
TOKEN_CHECK_MS_MIN: Final = 500
TOKEN_CHECK_MS_MAX: Final = 24 * 3_600_000
NAMES: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)


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
        self._hot_rights: HotRights | None = None
        self._acls_shown: AclSet | None = None

    def make(self) -> None:
        """ConfigError: the settings cannot be."""
        audit = self.audit = audit_of(self._config, self._clock)
        denials = denials_of(self._config, self._clock, audit)
        self.authorizer = authorizer_of(self._config, self._acls, denials)
        if denials is not None:
            self._scheduler.schedule("denials", denials.write, DENIALS_PERIOD_MS)
        if self._config[TOKEN_SECRET]:
            period_ms = max(TOKEN_CHECK_MS_MIN, min(self._config[TOKEN_CHECK], TOKEN_CHECK_MS_MAX))
            self._scheduler.schedule("tokens", self._sweep_tokens, period_ms)

    def _sweep_tokens(self) -> None:
        """Have the controller remove the tokens that are over, if it is this broker."""
        from kbroker.metadata.controller.token_changes import SweepTokens

        controller = self._controller()
        if controller.active and controller.image.tokens:
            controller.change_tokens(SweepTokens())

    def stop(self) -> None:
        """Writes what the audit log has left."""
        if self.audit is not None:
            self.audit.stop()

    @property
    def thread(self) -> OwnThread | None:
        """The audit log's."""
        return None if self.audit is None else self.audit.thread

    def check(self, hot: HotPath, dispatch: Dispatch) -> Dispatch:
        """Have the hot path ask for rights; `dispatch`, after what that takes. Call this once,
        before handlers start."""
        if self.authorizer is None:
            return dispatch
        from kbroker.engine._hot_verdicts import HotVerdicts
        from kbroker.server.hot_rights import HotRights

        verdicts = HotVerdicts(hot, VERDICT_SETS_MAX)
        rights = self._hot_rights = HotRights(hot, verdicts, self.authorizer)
        self.authorizer.kept = rights
        self._scheduler.schedule("denials in C", rights.write, DENIALS_PERIOD_MS)
        return rights.before(dispatch)

    def show(self, image: ClusterImage) -> None:
        """This is published."""
        if image.acls is not self._acls_shown:
            self._acls_shown = image.acls
            if self._hot_rights is not None:
                self._hot_rights.forget()

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
