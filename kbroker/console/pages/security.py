"""Users, ACLs, quotas and tokens, and whether a principal may do something, and by which rule.

Values are never part of it: of a user the mechanisms, of a token no HMAC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.console.asked import Asked
from kbroker.console.page import (
    Cell,
    Column,
    Fact,
    Facts,
    Field,
    Form,
    Notice,
    Page,
    Section,
    Table,
    Tone,
    Unit,
    to,
)
from kbroker.console.sections import in_order, piece, refusal, rows_of
from kbroker.errors import ErrorCode, KafkaError, UsageError, UserError
from kbroker.findings.acl_explain import Answer, Question, answer_of, lines_of
from kbroker.findings.acl_words import (
    OPERATION_NAMES,
    TYPE_NAMES,
    check_operation,
    check_principal,
    parse_operation,
    parse_resource,
)
from kbroker.peer.security import Security
from kbroker.quota.entities import EVERY
from kbroker.security.acl_filter import AclFilter
from kbroker.security.acls import Acl, PatternType, Permission
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.peer.token_messages import KnownToken
    from kbroker.quota.entities import QuotaEntity

_TYPES: Final = {label: type_ for type_, label in TYPE_NAMES.items()}
_ANY: Final = ("", "any")
_PATTERNS: Final = {
    "": PatternType.ANY,
    "match": PatternType.MATCH,
    "literal": PatternType.LITERAL,
    "prefixed": PatternType.PREFIXED,
}
_FILTERS: Final = ("principal", "type", "name", "pattern")
_MAY: Final = ("may_principal", "may_operation", "may_type", "may_name", "may_host")
_DEFAULT: Final = "(default)"
# A broker that has no such thing: no trouble.
_ABSENT: Final = {
    ErrorCode.SECURITY_DISABLED: "there is no authorizer: every client may do everything",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "tokens are described to clients that authenticate, and not with a token"
    ),
}


def make(asked: Asked) -> Page:
    sections: list[Section] = [*_may(asked)]
    for subject, look in (("ACLs", _acls), ("users", _users), ("quotas", _quotas),
                          ("tokens", _tokens)):  # fmt: skip
        try:
            sections += look(asked)
        except UsageError as error:
            sections.append(Notice(Tone.WARN, f"{subject}: {error.cause}", error.fix))
        except (KafkaError, UserError) as error:
            sections.append(_refusal(subject, error))
        asked.pause()
    return Page("Security", sections)


def _refusal(subject: str, error: KafkaError | UserError) -> Notice:
    absent = _ABSENT.get(error.code) if isinstance(error, KafkaError) else None
    if absent is not None:
        return Notice(Tone.QUIET, f"{subject}: {absent}")
    return refusal(subject, error)


def _kept(asked: Asked, names: Sequence[str]) -> dict[str, str | None]:
    """Values of the query that the next page needs, too."""
    return {name: asked.query.get(name) or None for name in names}


# --- may a principal do something -----------------------------------------------------------------


def _may(asked: Asked) -> Iterator[Section]:
    principal, operation, type_, name, host = (asked.query.get(each, "") for each in _MAY)
    if principal:
        try:
            yield from _answered(asked, principal, operation, type_, name, host)
        except UsageError as error:
            yield Notice(Tone.WARN, error.cause, error.fix)
        except (KafkaError, UserError) as error:
            yield _refusal("rights", error)
    operations = [(each, each) for each in OPERATION_NAMES.values()]
    types = [(each, each) for each in _TYPES]
    yield Form(
        "may", "May a principal do this?", to("security"),
        [
            Field("may_principal", "Principal", principal, help="as User:anna"),
            Field("may_operation", "Operation", operation or "Read", options=operations),
            Field("may_type", "Resource", type_ or "topic", options=types),
            Field("may_name", "Name", name, help="none for the cluster"),
            Field("may_host", "From address", host, help="any if left out"),
        ],
        "May it?",
    )  # fmt: skip


def _answered(
    asked: Asked, principal: str, operation: str, type_: str, name: str, host: str
) -> Iterator[Section]:
    """UsageError: the question is none."""
    check_principal(principal)
    resource, resource_name = parse_resource(f"{type_}:{name}")
    wanted = parse_operation(operation)
    check_operation(resource, wanted)
    question = Question(principal, wanted, resource, resource_name, host or None)
    yield _answer(answer_of(asked.client, question))


def _answer(answer: Answer) -> Facts:
    text, rule, *more = lines_of(answer)
    tone = Tone.GOOD if answer.allowed else Tone.WARN
    items = [
        Fact("allowed", "Allowed", Cell(answer.allowed, tone=tone)),
        Fact("answer", "Answer", Cell(text)),
        Fact("rule", "Rule", Cell(rule.removeprefix("rule: "))),
    ]
    items += [Fact(f"note_{number}", "Note", Cell(line)) for number, line in enumerate(more)]
    return Facts("explained", "Answer", items)


# --- lists ----------------------------------------------------------------------------------------


def _acls(asked: Asked) -> Iterator[Section]:
    principal, type_, name, pattern = (asked.query.get(each, "") for each in _FILTERS)
    yield Form(
        "acls_filter", "Find ACLs", to("security"),
        [
            Field("principal", "Principal", principal, help="as User:anna"),
            Field("type", "Resource", type_, options=[_ANY, *((each, each) for each in _TYPES)]),
            Field("name", "Name", name),
            Field("pattern", "Pattern", pattern,
                  options=[(each, each or "any") for each in _PATTERNS],
                  help="match: every ACL that covers the name"),
        ],
        "Find",
    )  # fmt: skip
    if principal:
        check_principal(principal)
    if (type_ and type_ not in _TYPES) or pattern not in _PATTERNS:
        raise UsageError("there is no such resource or pattern", "choose one of the list")
    wanted = AclFilter(
        _TYPES.get(type_, ResourceType.ANY), name or None, _PATTERNS[pattern],
        principal or None, None, Operation.ANY, Permission.ANY,
    )  # fmt: skip
    found = Security(asked.client).acls(wanted)
    asked.pause()
    columns = (
        Column("resource_type", "Resource"),
        Column("resource_name", "Name"),
        Column("pattern_type", "Pattern"),
        Column("principal", "Principal"),
        Column("host", "Host"),
        Column("operation", "Operation"),
        Column("permission", "Permission"),
    )
    held = piece(asked, "acls", len(found), "security", **_kept(asked, _FILTERS))
    rows = rows_of(asked, in_order(asked, found, held, lambda each: each), _acl)
    yield Table("acls", "ACLs", columns, rows, "no ACL", held.total, held.next_path)


def _acl(acl: Acl) -> Sequence[Cell]:
    """In the words of `kbroker acl list`."""
    (type_, kind, name), (principal, host, operation, permission) = acl
    denies = permission is Permission.DENY
    return (
        Cell(TYPE_NAMES.get(type_, type_.name.lower())),
        Cell(name),
        Cell(kind.name.lower()),
        Cell(principal),
        Cell(host),
        Cell(OPERATION_NAMES.get(operation, operation.name)),
        Cell(permission.name.lower(), tone=Tone.WARN if denies else Tone.PLAIN),
    )


def _users(asked: Asked) -> Iterator[Section]:
    found = Security(asked.client).users()
    every = [
        (each.name, mechanism, iterations)
        for each in found
        for mechanism, iterations in each.iterations.items()
    ]
    columns = (
        Column("user", "User"),
        Column("mechanism", "Mechanism"),
        Column("iterations", "Iterations", Unit.COUNT),
    )
    held = piece(asked, "users", len(every), "security")
    by_name = in_order(asked, every, held, lambda each: each)
    rows = rows_of(asked, by_name, lambda each: [Cell(value) for value in each])
    yield Table("users", "Users with SCRAM", columns, rows, "no user", held.total, held.next_path)


def _quotas(asked: Asked) -> Iterator[Section]:
    found = Security(asked.client).quotas()
    every = [(each.entity, key, value) for each in found for key, value in each.quotas.items()]
    columns = (
        Column("user", "User"),
        Column("client_id", "Client id"),
        Column("ip", "Address"),
        Column("quota", "Quota"),
        Column("value", "Value"),
    )

    def row(found: tuple[QuotaEntity, str, float]) -> Sequence[Cell]:
        entity, key, value = found
        parts = [_DEFAULT if part == EVERY else part for part in entity]
        return (*map(Cell, parts), Cell(key), Cell(int(value) if value.is_integer() else value))

    held = piece(asked, "quotas", len(every), "security")
    by_entity = in_order(asked, every, held, lambda each: (str(each[0]), each[1]))
    rows = rows_of(asked, by_entity, row)
    yield Table("quotas", "Quotas", columns, rows, "no quota", held.total, held.next_path)


def _tokens(asked: Asked) -> Iterator[Section]:
    found = Security(asked.client).tokens()
    columns = (
        Column("token_id", "Token id"),
        Column("owner", "Owner"),
        Column("requester", "Requester"),
        Column("renewers", "Renewers"),
        Column("issued_ms", "Issued", Unit.MOMENT_MS),
        Column("expires_ms", "Expires", Unit.MOMENT_MS),
        Column("max_ms", "At the latest", Unit.MOMENT_MS),
    )
    held = piece(asked, "tokens", len(found), "security")
    oldest = in_order(asked, found, held, lambda each: (each.token.issued_ms, each.token.token_id))
    rows = rows_of(asked, oldest, _token)
    yield Table("tokens", "Tokens", columns, rows, "no token", held.total, held.next_path)


def _token(known: KnownToken) -> Sequence[Cell]:
    token = known.token
    return (
        Cell(token.token_id),
        Cell(str(token.owner)),
        Cell(str(token.requester)),
        Cell(", ".join(map(str, token.renewers)) or None),
        Cell(token.issued_ms),
        Cell(token.expires_ms),
        Cell(token.max_ms),
    )
