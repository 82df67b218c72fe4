"""What the audit log has of a request that changes something: the items, and what became of each.

Place in the flow: `registry.py` has the call of such an API watched (`AUDITED`). When the call is
answered, its request, its response and the image from before it are noted; the audit log's thread
makes the record of them. A request that was forwarded is recorded by the controller, for its
client. A request that only asks what would happen (`validate_only`) is no change.

A record names what it needs for its API and nothing else: so no salt, password or HMAC of a request
can be in it. Values of settings are hidden where the key is sensitive or not known.

`watch`: any handler thread. The rest: the audit log's thread. Holds no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kbroker.config.definition import TOPIC_KEYS, find_broker_key
from kbroker.config.keys_resources import GROUP_KEYS
from kbroker.errors import ErrorCode
from kbroker.handlers.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kbroker.limits import AUDIT_ITEMS_MAX, AUDIT_TEXT_CHARS_MAX
from kbroker.metadata.image import ConfigKind
from kbroker.outside_text import printable
from kbroker.protocol import messages
from kbroker.security.acls import PatternType, Permission
from kbroker.security.audit import Kind
from kbroker.security.rights import RESOURCE_NAMES, Operation
from kbroker.security.scram import ScramMechanism
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.metadata.controller.decisions import TopicResult
    from kbroker.metadata.image import ClusterImage
    from kbroker.security.audit import AuditLog
    from kbroker.security.session import Session

HIDDEN: Final = "(hidden)"
AUTO_CREATION: Final = "AutoCreateTopics"
_NO_VALUES: Final[Mapping[str, str]] = MappingProxyType({})
_REFUSED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    }
)
_OPERATIONS: Final = ("set", "delete", "append", "subtract")
_CONFIG_RESOURCES: Final = {
    TOPIC: "topic",
    BROKER: "broker",
    BROKER_LOGGER: "loggers of broker",
    CLIENT_METRICS: "client-metrics",
    GROUP: "group",
}


class Item(NamedTuple):
    resource: str
    error: int
    more: Mapping[str, object] = {}


class Asked(NamedTuple):
    """A request and its response; `before`: the image when the request came; `subject`: what it is
    about, where a handler has found that out."""

    before: ClusterImage
    request: Any
    response: Any
    subject: str = ""


Items = Callable[[Asked], Iterable[Item]]


# --- on a handler's thread ------------------------------------------------------------------------


def watch(services: Services, call: Call[Any], key: ApiKey) -> None:
    """Note the call when it is answered, if its API changes something and there is an audit log."""
    audit, items = services.audit, AUDITED.get(key)
    if audit is None or items is None or getattr(call.message, "validate_only", False):
        return
    before, session, request = services.controller.image, call.session, call.message
    version, asked_bytes = call.version, len(call.request.body)
    response_of = getattr(messages, key.name.lower()).Response

    def record(subject: str, body: bytes) -> dict[str, object]:
        response = response_of.decode(body, version)
        return record_of(key.label, session, items(Asked(before, request, response, subject)))

    def answered(subject: str, body: bytes) -> None:
        audit.note(Kind.CHANGE, partial(record, subject, body), asked_bytes + len(body))

    call.watch = _Watch(answered)


class _Watch:
    """Is called with the body of the answer. `subject`: of the request, where its handler has found
    it out."""

    __slots__ = ("_answered", "subject")

    def __init__(self, answered: Callable[[str, bytes], None]) -> None:
        self._answered = answered
        self.subject = ""

    def __call__(self, body: bytes) -> None:
        self._answered(self.subject, body)


def name_subject(call: Call[Any], subject: str) -> None:
    """What a watched call is about: a token, which its request names by a secret."""
    if isinstance(call.watch, _Watch):
        call.watch.subject = subject


def auto_creation(audit: AuditLog, session: Session) -> Callable[[Sequence[TopicResult]], object]:
    """For the topics that are created since a client has named them in Metadata, or needs them in
    a streams group."""

    def noted(results: Sequence[TopicResult]) -> None:
        items = [Item(f"topic:{each.name}", each.error) for each in results]
        audit.note(Kind.CHANGE, lambda: record_of(AUTO_CREATION, session, items))

    return noted


# --- on the audit log's thread --------------------------------------------------------------------


def record_of(event: str, session: Session, items: Iterable[Item]) -> dict[str, object]:
    listed: list[dict[str, object]] = []
    errors: set[int] = set()
    count = 0
    for resource, error, more in items:
        count += 1
        errors.add(error)
        if len(listed) < AUDIT_ITEMS_MAX:
            outcome = {} if error == ErrorCode.NONE else {"error": _error_name(error)}
            listed.append({"resource": _short(resource), **more, **outcome})
    record: dict[str, object] = {
        "event": event,
        **client_of(session),
        "outcome": _outcome(errors),
        "items": listed,
    }
    if count > len(listed):
        record["more_items"] = count - len(listed)
    return record


def client_of(session: Session) -> dict[str, object]:
    return {
        "principal": _short(str(session.principal)),
        "host": session.client_host,
        "client_id": _short(session.client_id or ""),
        "listener": session.listener,
    }


def _outcome(errors: set[int]) -> str:
    if errors <= {ErrorCode.NONE}:
        return "done"
    if ErrorCode.NONE in errors:
        return "partly"
    return "refused" if errors <= _REFUSED else "failed"


def _error_name(code: int) -> str:
    return ErrorCode.for_code(code).name


def _short(text: str) -> str:
    return printable(text, AUDIT_TEXT_CHARS_MAX)


def _partition(topic: str, index: int) -> str:
    return f"partition:{topic}-{index}"


# --- topics and partitions ------------------------------------------------------------------------


def _create_topics(asked: Asked) -> Iterator[Item]:
    results = {each.name: each for each in asked.response.topics}
    for topic in asked.request.topics:
        result = results.get(topic.name)
        if result is None:
            continue
        more: dict[str, object] = {
            "partitions": _first_positive(
                result.num_partitions, topic.num_partitions, len(topic.assignments)
            ),
            "replication_factor": _first_positive(
                result.replication_factor, topic.replication_factor
            ),
        }
        if topic.configs:
            more["configs"] = {
                _short(each.name): _value(TOPIC, each.name, each.value)
                for each in topic.configs[:AUDIT_ITEMS_MAX]
            }
        yield Item(f"topic:{topic.name}", result.error_code, more)


def _first_positive(*numbers: int) -> int:
    return next((number for number in numbers if number > 0), -1)


def _delete_topics(asked: Asked) -> Iterator[Item]:
    for each in asked.response.responses:
        name = each.name or asked.before.topic_ids.get(each.topic_id) or str(each.topic_id)
        topic = asked.before.topic(name)
        more = {} if topic is None else {"partitions_before": len(topic.partitions)}
        yield Item(f"topic:{name}", each.error_code, more)


def _create_partitions(asked: Asked) -> Iterator[Item]:
    counts = {each.name: each.count for each in asked.request.topics}
    for each in asked.response.results:
        topic = asked.before.topic(each.name)
        more: dict[str, object] = {"partitions": counts.get(each.name)}
        if topic is not None:
            more["partitions_before"] = len(topic.partitions)
        yield Item(f"topic:{each.name}", each.error_code, more)


def _delete_records(asked: Asked) -> Iterator[Item]:
    for topic in asked.response.topics:
        for each in topic.partitions:
            yield Item(
                _partition(topic.name, each.partition_index),
                each.error_code,
                {"first_offset": each.low_watermark},
            )


def _reassign(asked: Asked) -> Iterator[Item]:
    errors = {
        (topic.name, each.partition_index): each.error_code
        for topic in asked.response.responses
        for each in topic.partitions
    }
    for topic in asked.request.topics:
        for each in topic.partitions:
            before = asked.before.partition(topic.name, each.partition_index)
            yield Item(
                _partition(topic.name, each.partition_index),
                errors.get((topic.name, each.partition_index), asked.response.error_code),
                {
                    "replicas": None if each.replicas is None else list(each.replicas),
                    "replicas_before": None if before is None else list(before.replicas),
                },
            )


def _elect_leaders(asked: Asked) -> Iterator[Item]:
    kind = "unclean" if asked.request.election_type else "preferred"
    results = asked.response.replica_election_results
    if not results:
        yield Item("partitions", asked.response.error_code, {"election": kind})
    for topic in results:
        for each in topic.partition_result:
            before = asked.before.partition(topic.topic, each.partition_id)
            more = {"election": kind, "leader_before": None if before is None else before.leader}
            yield Item(_partition(topic.topic, each.partition_id), each.error_code, more)


def _alter_log_dirs(asked: Asked) -> Iterator[Item]:
    paths = {
        (topic.name, index): each.path
        for each in asked.request.dirs
        for topic in each.topics
        for index in topic.partitions
    }
    for topic in asked.response.results:
        for each in topic.partitions:
            path = paths.get((topic.topic_name, each.partition_index), "")
            yield Item(
                _partition(topic.topic_name, each.partition_index),
                each.error_code,
                {"directory": _short(path)},
            )


# --- settings -------------------------------------------------------------------------------------


def _alter_configs(asked: Asked) -> Iterator[Item]:
    errors = {
        (each.resource_type, each.resource_name): each.error_code
        for each in asked.response.responses
    }
    for resource in asked.request.resources:
        kind, name = resource.resource_type, resource.resource_name
        before = _values_before(asked.before, kind, name)
        changes = [
            _setting(kind, each, before) for each in list(resource.configs)[:AUDIT_ITEMS_MAX]
        ]
        more: dict[str, object] = {"settings": changes}
        if _replaces(resource):
            named = {each.name for each in resource.configs}
            more["removed"] = [_short(key) for key in before if key not in named]
        label = _CONFIG_RESOURCES.get(kind, f"type {kind}")
        yield Item(f"{label}:{name}", errors.get((kind, name), ErrorCode.NONE), more)


def _replaces(resource: Any) -> bool:
    """Of AlterConfigs, which removes all settings that it does not name."""
    return isinstance(resource, messages.alter_configs.AlterConfigsResource)


def _setting(kind: int, each: Any, before: Mapping[str, str]) -> dict[str, object]:
    operation = getattr(each, "config_operation", 0)
    word = _OPERATIONS[operation] if 0 <= operation < len(_OPERATIONS) else str(operation)
    return {
        "key": _short(each.name),
        "operation": word,
        "value": _value(kind, each.name, each.value),
        "before": _value(kind, each.name, before.get(each.name)),
    }


def _values_before(image: ClusterImage, kind: int, name: str) -> Mapping[str, str]:
    if kind == TOPIC:
        topic = image.topic(name)
        return _NO_VALUES if topic is None else topic.configs
    try:
        return image.configs_of(ConfigKind(kind), name)
    except ValueError:
        return _NO_VALUES  # of loggers, which no image has


def _value(kind: int, key: str, value: str | None) -> str | None:
    if value is None:
        return None
    return HIDDEN if _is_secret(kind, key) else _short(value)


def _is_secret(kind: int, key: str) -> bool:
    """Also of a key that is not known: it may be a misspelt password."""
    if kind == TOPIC:
        return key not in TOPIC_KEYS or TOPIC_KEYS[key].sensitive
    if kind == BROKER:
        found = find_broker_key(key)
        return found is None or found.sensitive
    return kind == GROUP and key not in GROUP_KEYS


# --- security -------------------------------------------------------------------------------------


def _create_acls(asked: Asked) -> Iterator[Item]:
    for each, result in zip(asked.request.creations, asked.response.results, strict=False):
        kind = each.resource_type, each.resource_pattern_type, each.resource_name
        yield _acl(kind, each, result.error_code)


def _delete_acls(asked: Asked) -> Iterator[Item]:
    for wanted, result in zip(asked.request.filters, asked.response.filter_results, strict=False):
        if not result.matching_acls:
            name = wanted.resource_name_filter
            yield Item(f"acls:{'*' if name is None else name}", result.error_code)
        for each in result.matching_acls:
            kind = each.resource_type, each.pattern_type, each.resource_name
            yield _acl(kind, each, each.error_code)


def _acl(resource: tuple[int, int, str], each: Any, error: int) -> Item:
    type_, kind, name = resource
    label = RESOURCE_NAMES.get(type_, str(type_))  # type: ignore[call-overload]
    more = {
        "resource_type": label,
        "pattern_type": _name(PatternType, kind),
        "acl_principal": _short(each.principal),
        "acl_host": _short(each.host),
        "operation": _name(Operation, each.operation),
        "permission": _name(Permission, each.permission_type),
    }
    return Item(f"acl:{name}", error, more)


def _name(kind: Any, number: int) -> str:
    try:
        return str(kind(number).name)
    except ValueError:
        return str(number)


def _alter_users(asked: Asked) -> Iterator[Item]:
    errors = {each.user: each.error_code for each in asked.response.results}
    for each in asked.request.deletions:
        more: dict[str, object] = {"change": "delete", "mechanism": _mechanism(each.mechanism)}
        yield Item(f"user:{each.name}", errors.get(each.name, ErrorCode.NONE), more)
    for each in asked.request.upsertions:
        mechanism = _mechanism(each.mechanism)
        more = {
            "change": "set",
            "mechanism": mechanism,
            "iterations": each.iterations,
            "had_one": mechanism in asked.before.users.get(each.name, _NO_VALUES),
        }
        yield Item(f"user:{each.name}", errors.get(each.name, ErrorCode.NONE), more)


def _mechanism(code: int) -> str:
    found = ScramMechanism.for_code(code)
    return str(code) if found is None else found.value


def _alter_quotas(asked: Asked) -> Iterator[Item]:
    for entry, result in zip(asked.request.entries, asked.response.entries, strict=False):
        entity = ",".join(
            f"{each.entity_type}={'<default>' if each.entity_name is None else each.entity_name}"
            for each in entry.entity
        )
        changes = {
            _short(each.key): None if each.remove else each.value
            for each in list(entry.ops)[:AUDIT_ITEMS_MAX]
        }
        yield Item(f"quota:{entity}", result.error_code, {"quotas": changes})


def _token(asked: Asked) -> Iterator[Item]:
    """Its HMAC, which is in each of these, is not in the record."""
    response, more = asked.response, dict[str, object]()
    known = asked.before.tokens.get(asked.subject)
    if isinstance(response, messages.create_delegation_token.Response):
        more["owner"] = _short(f"{response.principal_type}:{response.principal_name}")
    elif known is not None:
        more["owner"] = _short(str(known.owner))
        more["expires_ms_before"] = known.expires_ms
    if response.error_code == ErrorCode.NONE:
        more["expires_ms"] = response.expiry_timestamp_ms
    yield Item(f"token:{asked.subject}", response.error_code, more)


# --- the cluster, and groups ----------------------------------------------------------------------


def _update_features(asked: Asked) -> Iterator[Item]:
    errors = {each.feature: each.error_code for each in asked.response.results}
    for each in asked.request.feature_updates:
        error = errors.get(each.feature, asked.response.error_code)
        yield Item(f"feature:{each.feature}", error, {"level": each.max_version_level})


def _unregister(asked: Asked) -> Iterator[Item]:
    yield Item(f"broker:{asked.request.broker_id}", asked.response.error_code)


def _delete_groups(asked: Asked) -> Iterator[Item]:
    for each in asked.response.results:
        yield Item(f"group:{each.group_id}", each.error_code)


def _delete_offsets(asked: Asked) -> Iterator[Item]:
    group = f"group:{asked.request.group_id}"
    if not asked.response.topics:
        yield Item(group, asked.response.error_code)
    for topic in asked.response.topics:
        for each in topic.partitions:
            more = {"offset_of": _partition(_short(topic.name), each.partition_index)}
            yield Item(group, each.error_code, more)


def _alter_share_offsets(asked: Asked) -> Iterator[Item]:
    group = f"group:{asked.request.group_id}"
    if not asked.response.responses:
        yield Item(group, asked.response.error_code)
    starts = {
        (topic.topic_name, each.partition_index): each.start_offset
        for topic in asked.request.topics
        for each in topic.partitions
    }
    for topic in asked.response.responses:
        name = topic.topic_name
        for each in topic.partitions:
            index = each.partition_index
            more = {"offset_of": _partition(_short(name), index), "to": starts.get((name, index))}
            yield Item(group, each.error_code, more)


def _delete_share_offsets(asked: Asked) -> Iterator[Item]:
    group = f"group:{asked.request.group_id}"
    if not asked.response.responses:
        yield Item(group, asked.response.error_code)
    for topic in asked.response.responses:
        yield Item(group, topic.error_code, {"offsets_of": _short(topic.topic_name)})


# The APIs that change something which outlives the request, and is not a record or the offset of a
# consumer.
AUDITED: Final[Mapping[ApiKey, Items]] = MappingProxyType(
    {
        ApiKey.CREATE_TOPICS: _create_topics,
        ApiKey.DELETE_TOPICS: _delete_topics,
        ApiKey.DELETE_RECORDS: _delete_records,
        ApiKey.CREATE_ACLS: _create_acls,
        ApiKey.DELETE_ACLS: _delete_acls,
        ApiKey.ALTER_CONFIGS: _alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
        ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
        ApiKey.CREATE_PARTITIONS: _create_partitions,
        ApiKey.CREATE_DELEGATION_TOKEN: _token,
        ApiKey.RENEW_DELEGATION_TOKEN: _token,
        ApiKey.EXPIRE_DELEGATION_TOKEN: _token,
        ApiKey.DELETE_GROUPS: _delete_groups,
        ApiKey.ELECT_LEADERS: _elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassign,
        ApiKey.OFFSET_DELETE: _delete_offsets,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: _alter_share_offsets,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: _delete_share_offsets,
        ApiKey.ALTER_CLIENT_QUOTAS: _alter_quotas,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_users,
        ApiKey.UPDATE_FEATURES: _update_features,
        ApiKey.UNREGISTER_BROKER: _unregister,
    }
)
