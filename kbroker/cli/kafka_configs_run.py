"""What `kbroker kafka-configs` does after its options were read: it describes and alters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from kbroker.cli.kafka_configs import (
    BROKERS,
    CLIENTS,
    EVERY,
    GROUPS,
    IPS,
    LOGGERS,
    METRICS,
    TOPICS,
    USERS,
    Asked,
    Refused,
)
from kbroker.cli.kafka_tool import fail, in_hash_order, java_double, java_hash
from kbroker.cli.numbers import INT_MAX, INT_MIN, number_of
from kbroker.cli.output import say_to_programs
from kbroker.errors import ErrorCode, KafkaError
from kbroker.limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN
from kbroker.peer.config_messages import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    LOGGER_RESOURCE,
    METRICS_RESOURCE,
    TOPIC_RESOURCE,
    Resource,
)
from kbroker.quota.entities import CLIENT_ID, CLIENT_QUOTAS, IP, IP_QUOTAS, USER, QuotaEntity

if TYPE_CHECKING:
    from kbroker.peer.client import Client
    from kbroker.peer.config_messages import ConfigValue
    from kbroker.peer.quota_messages import EntityQuotas
    from kbroker.peer.user_messages import NewPassword
    from kbroker.security.scram import ScramMechanism

_RESOURCES: Final[Mapping[str, int]] = {
    TOPICS: TOPIC_RESOURCE,
    BROKERS: BROKER_RESOURCE,
    LOGGERS: LOGGER_RESOURCE,
    METRICS: METRICS_RESOURCE,
    GROUPS: GROUP_RESOURCE,
}
# Kafka's ConfigSource.
_DEFAULT_OF_BROKERS: Final = 3
_SOURCES: Final[Mapping[int, str]] = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_OWN: Final[Mapping[str, int]] = {TOPICS: 1, BROKERS: 2, LOGGERS: 6, METRICS: 7, GROUPS: 8}
_QUOTA_TYPES: Final[Mapping[str, str]] = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}
_PRINCIPALS: Final[Mapping[str, str]] = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_SCRAM: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.ASCII | re.DOTALL)
_NUMBER: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?", re.ASCII
)
_OF_A_SET: Final = 4  # entries: a set of Scala has another name with more


# --- describe -------------------------------------------------------------------------------------


def describe(client: Client, asked: Asked) -> None:
    if asked.types[0] in _QUOTA_TYPES:
        _describe_quotas(client, asked)
        if asked.types == (USERS,) and EVERY not in asked.names:
            _describe_scram(client, asked.name)
        return
    kind = asked.types[0]
    if asked.name is not None and not asked.every and not _is_there(client, kind, asked.name):
        say_to_programs(
            f"The {_singular(kind)} '{asked.name}' doesn't exist and doesn't have dynamic config."
        )
        return
    for name in _names(client, kind) if asked.name is None else [asked.name]:
        _describe(client, kind, name, every=asked.every)


def _is_there(client: Client, kind: str, name: str) -> bool:
    """Where it cannot be known it is taken for there, so that its own error is printed."""
    if kind == BROKERS and name == EVERY:
        return True
    if kind == TOPICS:
        return name in client.metadata().topics
    if kind in (BROKERS, LOGGERS):
        return name in map(str, client.metadata([]).brokers)
    if kind == METRICS:
        return name in client.config_resources(METRICS_RESOURCE)
    try:
        return name in _groups(client)
    except KafkaError as error:
        if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        return True


def _names(client: Client, kind: str) -> Iterable[str]:
    if kind == TOPICS:
        return in_hash_order(client.metadata().topics)
    if kind == METRICS:
        return client.config_resources(METRICS_RESOURCE)
    if kind == GROUPS:
        try:
            return sorted(_groups(client))
        except KafkaError as error:
            if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                raise
            return sorted(_listed_groups(client))
    return [*map(str, sorted(client.metadata([]).brokers)), EVERY]


def _groups(client: Client) -> set[str]:
    """With settings of their own, or with members or offsets."""
    return set(client.config_resources(GROUP_RESOURCE)) | _listed_groups(client)


def _listed_groups(client: Client) -> set[str]:
    from kbroker.peer.groups import Groups

    return {listed.group.group for listed in Groups(client).list_groups()}


def _describe(client: Client, kind: str, name: str, *, every: bool) -> None:
    if kind == BROKERS and name == EVERY:
        say_to_programs("Default configs for brokers in the cluster are:")
        own, every = _DEFAULT_OF_BROKERS, False
    else:
        which = "All" if every else "Dynamic"
        say_to_programs(f"{which} configs for {_singular(kind)} {name} are:")
        own = _OWN[kind]
    for each in sorted(client.configs(Resource(_RESOURCES[kind], name), details=True)):
        if every or each.source == own:
            say_to_programs(_line(each))


def _line(each: ConfigValue) -> str:
    synonyms = ", ".join(
        f"{_SOURCES.get(of.source, 'UNKNOWN')}:{of.name}={_null(of.value)}" for of in each.synonyms
    )
    sensitive = str(each.sensitive).lower()
    return f"  {each.name}={_null(each.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _null(value: str | None) -> str:
    return "null" if value is None else value


def _singular(kind: str) -> str:
    return kind.removesuffix("s")


def _describe_quotas(client: Client, asked: Asked) -> None:
    from kbroker.peer.security import Security

    if len(asked.names) > len(asked.types):
        _refuse("More entity names specified than entity types")
    kinds = [_QUOTA_TYPES[kind] for kind in asked.types]
    named = dict(zip(kinds, asked.names, strict=False))
    found = {
        each.entity: each
        for each in Security(client).quotas()
        if set(each.entity.parts) == set(kinds)
        and all(each.entity.parts[kind] == name for kind, name in named.items())
    }
    for entity in in_hash_order(found, _hash_of_entity, size=len(found)):
        say_to_programs(f"Quota configs for {_shown(entity)} are {_shown_quotas(found[entity])}")


def _hash_of_entity(entity: QuotaEntity) -> int:
    return 31 + sum(
        java_hash(kind) ^ (java_hash(name) if name else 0) for kind, name in entity.parts.items()
    )


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(
        f"{_PRINCIPALS[kind]} '{name}'" if name else f"the default {_PRINCIPALS[kind]}"
        for kind, name in entity.parts.items()
    )


def _shown_quotas(found: EntityQuotas) -> str:
    keys = in_hash_order(found.quotas, size=len(found.quotas))
    return ", ".join(f"{key}={java_double(found.quotas[key])}" for key in keys)


def _describe_scram(client: Client, name: str | None) -> None:
    from kbroker.peer.security import Security

    for user in Security(client).users():
        if name in (None, user.name):
            of_each = ", ".join(
                f"{mechanism}=iterations={count}" for mechanism, count in user.iterations.items()
            )
            say_to_programs(
                f"SCRAM credential configs for user-principal '{user.name}' are {of_each}"
            )


# --- alter ----------------------------------------------------------------------------------------


def alter(client: Client, asked: Asked) -> None:
    kind, name = asked.types[0], asked.names[0]
    if kind in _QUOTA_TYPES:
        _alter_entity(client, asked)
    else:
        _alter_resource(client, kind, name, asked)
    if name != EVERY:
        say_to_programs(f"Completed updating config for {_singular(kind)} {name}.")
    else:
        say_to_programs(f"Completed updating default config for {kind} in the cluster.")


def _alter_resource(client: Client, kind: str, name: str, asked: Asked) -> None:
    resource = Resource(_RESOURCES[kind], name)
    if kind == LOGGERS:
        known = {each.name for each in client.configs(resource)}
        unknown = [each for each in (*asked.deleted, *asked.added) if each not in known]
        if unknown:
            _refuse(f"Invalid broker logger(s): {','.join(unknown)}")
    for result in client.alter_configs([resource], asked.added, asked.deleted):
        _raise(result.error, result.message)


def _alter_entity(client: Client, asked: Asked) -> None:
    if asked.types == (IPS,):
        unknown = [each for each in _in_hash_order(asked.added, asked.deleted)
                   if each not in IP_QUOTAS]  # fmt: skip
        if unknown:
            _refuse_names(f"added for '{IPS}'", ",".join(unknown), "connection quota")
        _alter_quotas(client, asked)
        return
    scram = [each for each in asked.added if _mechanism(each)]
    unscram = [each for each in asked.deleted if _mechanism(each)]
    of_user = asked.types == (USERS,)
    refused = CLIENT_QUOTAS if not of_user else (*CLIENT_QUOTAS, *scram, *unscram)
    added = [each for each in in_hash_order(asked.added) if each not in refused]
    added.sort(key=lambda each: each in scram)
    deleted = [each for each in asked.deleted if each not in refused]
    what = "quota and SCRAM credential" if of_user else "quota"
    of = USERS if of_user else CLIENTS
    if added:
        _refuse_names(f"added for '{of}'", _scala_set(added), what)
    if deleted:
        _refuse_names(f"deleted for '{of}'", f"ArrayBuffer({', '.join(deleted)})", what)
    if not scram and not unscram:
        _alter_quotas(client, asked)
        return
    if EVERY in asked.names:
        _refuse(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM"
            " Credentials using --bootstrap-server."
        )
    if len(scram) < len(asked.added) or len(unscram) < len(asked.deleted):
        _refuse(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using"
            " --bootstrap-server."
        )
    _alter_scram(client, asked)


def _in_hash_order(added: Iterable[str], deleted: Iterable[str]) -> list[str]:
    return [*in_hash_order(added), *deleted]


def _scala_set(names: Sequence[str]) -> str:
    return f"{'Set' if len(names) <= _OF_A_SET else 'HashSet'}({', '.join(names)})"


def _refuse_names(how: str, names: str, what: str) -> NoReturn:
    _refuse(
        f"Only {what} configs can be {how} using --bootstrap-server."
        f" Unexpected config names: {names}"
    )


def _alter_quotas(client: Client, asked: Asked) -> None:
    from kbroker.peer.security import Security

    security = Security(client)
    entity = _entity(asked)
    if asked.deleted:
        now = {each.entity: each.quotas for each in security.quotas(entity)}.get(entity, {})
        missing = [each for each in asked.deleted if each not in now]
        if missing:
            _refuse(f"Invalid config(s): {','.join(missing)}")
    quotas = {key: _quota(key, value) for key, value in asked.added.items()}
    for result in security.alter_quotas(entity, quotas, asked.deleted):
        _raise(result.error, result.message)


def _entity(asked: Asked) -> QuotaEntity:
    named = dict(zip(asked.types, asked.names, strict=True))
    return QuotaEntity(named.get(USERS), named.get(CLIENTS), named.get(IPS))


def _quota(key: str, value: str) -> float:
    if not _NUMBER.fullmatch(value):
        _refuse(f"Cannot parse quota configuration value for {key}: {value}")
    return float(value.rstrip("fFdD") if not value.endswith("Infinity") else value)


def _alter_scram(client: Client, asked: Asked) -> None:
    from kbroker.peer.security import Security

    (name,) = asked.names
    removed = [(name, mechanism) for each in asked.deleted if (mechanism := _mechanism(each))]
    new = [
        _password(name, mechanism, value)
        for key, value in asked.added.items()
        if (mechanism := _mechanism(key))
    ]
    for result in Security(client).alter_users(new, removed):
        _raise(result.error, result.message)


def _mechanism(name: str) -> ScramMechanism | None:
    from kbroker.security.scram import ScramMechanism

    return ScramMechanism.for_name(name)


def _password(name: str, mechanism: ScramMechanism, text: str) -> NewPassword:
    from kbroker.peer.user_messages import NewPassword

    match = _SCRAM.fullmatch(text)
    if match is None:  # the original prints the value here, which has the password
        _refuse(f"Invalid credential property {mechanism.value.replace('-', '_')}")
    if match[1] in ("", "-"):
        _refuse(f'For input string: "{match[1]}"')
    iterations = number_of(match[1] or "-1", INT_MIN, INT_MAX)
    if iterations is None:
        _refuse(f'For input string: "{match[1]}"')
    if iterations == -1:
        iterations = SCRAM_ITERATIONS_MIN
    if iterations < SCRAM_ITERATIONS_MIN:
        _refuse(
            f"Iterations {iterations} is less than the minimum {SCRAM_ITERATIONS_MIN} required"
            f" for {mechanism.value}"
        )
    if iterations > SCRAM_ITERATIONS_MAX:  # before the password is hashed so often
        _refuse(
            f"Iterations {iterations} is more than the maximum {SCRAM_ITERATIONS_MAX} allowed"
            f" for {mechanism.value}"
        )
    if not match[2]:
        fail("Password must not be empty")
    return NewPassword(name, mechanism, match[2], iterations)


def _raise(error: ErrorCode, message: str | None) -> None:
    if error is not ErrorCode.NONE:
        raise KafkaError(error, message or "")


def _refuse(message: str) -> NoReturn:
    raise Refused(message)
