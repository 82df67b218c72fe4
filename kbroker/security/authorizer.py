"""Decides who may do what: super users, then ACLs, then the default.

Place in the flow: the server makes one if `authorizer.class.name` names Apache Kafka's authorizer.
Handlers ask it by `handlers/authorization.py`. It reads the ACLs of the published image.

The rules are those of Apache Kafka's StandardAuthorizer:

1. A principal of `super.users` may do everything.
2. An ACL that denies, and covers the resource, decides.
3. Else one that allows. READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies
   DESCRIBE_CONFIGS. No such rule extends an ACL that denies.
4. Else, if no ACL covers the resource, `allow.everyone.if.no.acl.found` decides.
5. Else it is denied.

A right that it has allowed is known until the ACLs change, since a client asks for the same rights
with each request. A denial is decided each time, because it is logged. If there is no room for one
more right, all are forgotten, and decided again.

Immutable but for the image it reads and for the rights it knows; any thread; holds no lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kbroker.limits import KNOWN_RIGHT_CHARS_MAX, KNOWN_RIGHTS_MAX
from kbroker.security.acl_set import NO_ACL_SET, AclSet
from kbroker.security.acls import ALLOW_BITS, DENY_BITS, Acl, Bits, Entry, Permission
from kbroker.security.hosts import java_host
from kbroker.security.rights import OPERATIONS, Operation, Resource, ResourceType
from kbroker.security.session import Principal

if TYPE_CHECKING:
    from kbroker.security.denials import Denials, Denied
    from kbroker.security.session import Session
    from kbroker.types import ApiKey

# A name that no topic can have without ACLs that cover every name, but for a literal ACL of it.
_ANY_NAME: Final = "hardcode"


class Reason(Enum):
    """What decided, in the words of Apache Kafka's log."""

    SUPER_USER = "SuperUser"
    ACL = "MatchingAcl"
    NO_ACL_ALLOWS = "DefaultAllow"
    DEFAULT = "DefaultDeny"


class Decision(NamedTuple):
    """`acl` is the ACL that decided, if one did; `is_covered`: some ACL covers the resource."""

    allowed: bool
    reason: Reason
    acl: Acl | None = None
    is_covered: bool = False

    @property
    def rule(self) -> str:
        """As Apache Kafka's log has it."""
        if self.acl is None:
            return self.reason.value
        return f"{self.reason.value}(acl={self.acl})"


class Rules(NamedTuple):
    """`super_users` are texts, TYPE:NAME."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False

    def decide(
        self,
        acls: AclSet,
        principal: str,
        host: str,
        operation: Operation,
        type_: ResourceType,
        name: str,
    ) -> Decision:
        """`host` as Java prints it (`hosts.py`)."""
        if principal in self.super_users:
            return Decision(True, Reason.SUPER_USER)
        found = acls.covering(principal, host, operation, type_, name)
        if found.denied_by is not None:
            pattern, number, subject = found.denied_by
            acl = Acl(pattern, Entry(*subject, Operation(number), Permission.DENY))
            return Decision(False, Reason.ACL, acl, True)
        if found.allowed_by is not None:
            pattern, number, subject = found.allowed_by
            acl = Acl(pattern, Entry(*subject, Operation(number), Permission.ALLOW))
            return Decision(True, Reason.ACL, acl, True)
        if not found.is_covered and self.allow_if_no_acl:
            return Decision(True, Reason.NO_ACL_ALLOWS)
        return Decision(False, Reason.DEFAULT, None, found.is_covered)

    def operations(
        self, acls: AclSet, principal: str, host: str, type_: ResourceType
    ) -> Callable[[str], int]:
        """A look-up for resources of this type: the bits of all operations that `decide` allows on
        a name, by one look at the ACLs that cover it."""
        everything = sum(1 << each for each in OPERATIONS[type_])
        if principal in self.super_users:
            return lambda _: everything
        without_acls = everything if self.allow_if_no_acl else 0
        bits_of = acls.bits_for(principal, host, type_)
        known: dict[Bits, int] = {}

        def look_up(name: str) -> int:
            bits = bits_of(name)
            if bits is None:
                return without_acls
            allowed = known.get(bits)
            if allowed is None:
                allowed = known[bits] = _allowed(bits, type_)
            return allowed

        return look_up

    def decide_by_type(
        self, acls: AclSet, principal: str, host: str, operation: Operation, type_: ResourceType
    ) -> bool:
        """Whether this is allowed on some resource of the type (KIP-679)."""
        if self.decide(acls, principal, host, operation, type_, _ANY_NAME).allowed:
            return True
        return acls.allows_some(principal, host, operation, type_)


def _allowed(bits: Bits, type_: ResourceType) -> int:
    deny, allow = bits
    return sum(
        1 << each
        for each in OPERATIONS[type_]
        if allow & ALLOW_BITS[each] and not deny & DENY_BITS[each]
    )


class Kept(Protocol):
    """Where what was allowed is kept, so that it need not be asked again."""

    @property
    def generation(self) -> int:
        """Of the ACLs; read it before they are looked at."""

    @property
    def served(self) -> Collection[ApiKey]:
        """The APIs whose requests come to Python where a verdict is not kept."""

    def keeps(self, operation: Operation, type_: ResourceType) -> bool: ...

    def allowed(
        self, session: Session, operation: Operation, resource: Resource, generation: int
    ) -> None: ...


class _Known(NamedTuple):
    """The rights that were asked for and that these ACLs allow. Any thread adds to them."""

    acls: AclSet
    allowed: set[tuple[Principal, str, Operation, Resource]]

    def add(self, session: Session, operation: Operation, resource: Resource) -> None:
        principal, host = session.principal, session.client_host
        chars = len(principal.type) + len(principal.name) + len(host) + len(resource.name)
        if chars > KNOWN_RIGHT_CHARS_MAX:
            return
        if len(self.allowed) >= KNOWN_RIGHTS_MAX:
            self.allowed.clear()
        self.allowed.add((principal, host, operation, resource))


class AclAuthorizer:
    """The authorizer of a broker. `kept` may be set before it is asked first."""

    __slots__ = ("_acls", "_denials", "_known", "kept", "rules")

    def __init__(self, rules: Rules, acls: Callable[[], AclSet], denials: Denials) -> None:
        self.rules = rules
        self.kept: Kept | None = None
        self._acls = acls
        self._denials = denials
        self._known = _Known(NO_ACL_SET, set())

    def authorize(
        self,
        session: Session,
        operation: Operation,
        resources: Sequence[Resource],
        request: ApiKey,
        *,
        quiet: bool = False,
    ) -> Collection[Resource]:
        """Those on which the principal may not do this. `quiet`: they are not logged."""
        kept = self.kept
        if (kept is None or request not in kept.served) and self._knows(
            session, operation, resources
        ):
            return ()
        generation = 0 if kept is None else kept.generation
        acls = self._acls()
        known = self._known
        if known.acls is not acls:  # one that still decides by those of before has its own
            known = self._known = _Known(acls, set())
        denied = self._decide(acls, session, operation, resources, request, quiet=quiet)
        for resource in resources:
            if resource not in denied:
                known.add(session, operation, resource)
                if kept is not None and kept.keeps(operation, resource.type):
                    kept.allowed(session, operation, resource, generation)
        return denied

    def _knows(self, session: Session, operation: Operation, resources: Sequence[Resource]) -> bool:
        """Whether all of this was allowed before."""
        known = self._known
        if known.acls is not self._acls():
            return False
        allowed = known.allowed
        principal, _, _, host = session
        return allowed.issuperset([(principal, host, operation, each) for each in resources])

    def decide(
        self,
        session: Session,
        operation: Operation,
        resources: Sequence[Resource],
        request: ApiKey,
        *,
        quiet: bool = False,
    ) -> Collection[Resource]:
        """As `authorize`, and nothing is kept."""
        return self._decide(self._acls(), session, operation, resources, request, quiet=quiet)

    def _decide(
        self,
        acls: AclSet,
        session: Session,
        operation: Operation,
        resources: Sequence[Resource],
        request: ApiKey,
        *,
        quiet: bool,
    ) -> Collection[Resource]:
        principal, host = str(session.principal), java_host(session.client_host)
        denied = set()
        # Counted once: a request names so many that each cannot be looked for among all.
        for resource, times in Counter(resources).items():
            decision = self.rules.decide(acls, principal, host, operation, *resource)
            if decision.allowed:
                continue
            denied.add(resource)
            if not quiet:
                self._denials.note(
                    principal, host, operation, resource, request, times, decision.rule
                )
        return denied

    def denied_lately(self) -> list[Denied]:
        """What was denied in the last seconds, and to which principals; names may be cut."""
        return self._denials.lately()

    def note_repeats(
        self,
        session: Session,
        operation: Operation,
        resource: Resource,
        request: ApiKey,
        count: int,
    ) -> None:
        """So many requests were denied this by a verdict of before, which C had kept."""
        principal, host = str(session.principal), java_host(session.client_host)
        decision = self.rules.decide(self._acls(), principal, host, operation, *resource)
        rule = Reason.DEFAULT.value if decision.allowed else decision.rule
        self._denials.note(principal, host, operation, resource, request, 1, rule, count - 1)

    def operations(self, session: Session, type_: ResourceType) -> Callable[[str], int]:
        """A look-up for the request at hand: the bits of the operations that the principal may do
        on a resource, by the ACLs of now. Nothing is logged or kept."""
        principal, host = str(session.principal), java_host(session.client_host)
        return self.rules.operations(self._acls(), principal, host, type_)

    def authorize_by_type(
        self, session: Session, operation: Operation, type_: ResourceType, request: ApiKey
    ) -> bool:
        """Whether the principal may do this on some resource of the type; denials are not logged,
        since a right on the cluster is asked for next."""
        principal, host = str(session.principal), java_host(session.client_host)
        return self.rules.decide_by_type(self._acls(), principal, host, operation, type_)


def super_users(text: str) -> frozenset[str]:
    """The value of `super.users`: principals, separated by ";". ValueError: one is none."""
    return frozenset(str(parse_principal(each.strip())) for each in text.split(";") if each.strip())


def parse_principal(text: str) -> Principal:
    """ValueError: it is not TYPE:NAME."""
    type_, colon, name = text.partition(":")
    if not (type_ and colon and name):
        raise ValueError(f"the principal '{text}' is not TYPE:NAME")
    return Principal(type_, name)
