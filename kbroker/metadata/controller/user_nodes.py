"""The nodes of users, clients and addresses: SCRAM credentials, quotas, and whatever else Apache
Kafka 3.9 keeps of a user.

    /config/users/NAME                  {"version":1,"config":{"SCRAM-SHA-256":"salt=...,..."}}
    /config/users/NAME/clients/ID       {"version":1,"config":{"producer_byte_rate":"1024"}}
    /config/clients/ID                  the same
    /config/ips/ADDRESS                 {"version":1,"config":{"connection_creation_rate":"10"}}
    /config/changes/config_change_N     {"version":2,"entity_path":"users/NAME"}: NAME has changed

Place in the flow: as `nodes.py` for topics. Names are in the form of a URL's query, as Kafka 3.9
writes them; `<default>` is for every one. An IPv6 address has its colons as they are: Kafka 3.9
quotes them, cannot read that as an address, and then does not start. A quoted node that an earlier
kbroker wrote counts where there is no other; a change of that address replaces it. Settings that
mean nothing here are kept. A node below `/config/users/NAME` (of one client id) keeps NAME's node
there, without settings. A node without settings is removed, and so are its parents where they have
no others.

A change in ZooKeeper has a notice, by which Apache Kafka's tools and brokers learn of it, and
kbroker of theirs: kafka-configs 3.9 writes the same two nodes. Of notices the last ones are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, Protocol
from urllib.parse import quote, unquote, unquote_to_bytes

from kbroker.errors import DataDirectoryError
from kbroker.limits import NOTICES_KEPT_MAX
from kbroker.metadata.controller import records
from kbroker.metadata.image import EVERY_USER
from kbroker.metadata.store.base import (
    PATH_CHARS_MAX,
    Create,
    Delete,
    MetadataStore,
    Node,
    NoNodeError,
    Operation,
    Set,
    parent_of,
)
from kbroker.quota.entities import EVERY, QuotaEntity

log = logging.getLogger("kbroker.controller")

USERS: Final = "/config/users"
CLIENTS: Final = "/config/clients"
IPS: Final = "/config/ips"
NOTICES: Final = "/config/changes"
_NOTICE: Final = "config_change_"
_NOTICE_VERSION: Final = 2
_CONFIG: Final = "/config/"
_DEFAULT: Final = "<default>"
_OF_A_USER: Final = "clients"


class Tree(Protocol):
    """A store, or the store as it will be (`planned_tree.py`)."""

    def get(self, path: str) -> Node: ...
    def exists(self, path: str) -> bool: ...
    def children(self, path: str) -> list[str]: ...


class UserNode(NamedTuple):
    """As it was read; without a version it is not there."""

    path: str
    settings: Mapping[str, str]
    version: int | None
    earlier: Delete | None = None  # of an address: the node that an earlier kbroker wrote


def user_path(name: str) -> str:
    """ValueError: no node can be called so."""
    return f"{USERS}/{_node_name(name)}"


def entity_path(entity: QuotaEntity) -> str:
    """ValueError: no node can be called so."""
    if entity.ip is not None:
        path = f"{IPS}/{_node_name(entity.ip, safe=':')}"
    elif entity.user is None:
        path = f"{CLIENTS}/{_node_name(entity.client_id or EVERY)}"
    elif entity.client_id is None:
        path = user_path(entity.user)
    else:
        path = f"{user_path(entity.user)}/{_OF_A_USER}/{_node_name(entity.client_id)}"
    if len(path) > PATH_CHARS_MAX:
        raise ValueError(f"its node would have a path of {len(path)} characters")
    return path


def entity_at(path: str) -> QuotaEntity | None:
    """Of a node; None: of something else. DataDirectoryError: its name is none."""
    names = path.removeprefix(_CONFIG).split("/")
    if "" in names:
        return None
    match names:
        case ["users", user]:
            return QuotaEntity(user=user_name(user))
        case ["users", user, "clients", client]:
            return QuotaEntity(user_name(user), user_name(client))
        case ["clients", client]:
            return QuotaEntity(client_id=user_name(client))
        case ["ips", ip]:
            return QuotaEntity(ip=user_name(ip))
    return None


def _node_name(name: str, safe: str = "") -> str:
    if name == EVERY_USER:
        return _DEFAULT
    quoted = quote(name, safe=safe).replace("~", "%7E")
    if quoted in (".", ".."):
        raise ValueError(f"a user called {name!r} cannot be stored")
    return quoted


def user_name(child: str) -> str:
    """The inverse, of the last part of a path. DataDirectoryError: it is no name."""
    if child == _DEFAULT:
        return EVERY_USER
    try:
        return unquote_to_bytes(child.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise records.damaged(f"{USERS}/{child}", "its name is not UTF-8") from None


def load_users(store: MetadataStore) -> dict[str, Mapping[str, str]]:
    """The settings of all users that have some. One that cannot be read is left out: it does not
    log in, and the others do."""
    users: dict[str, Mapping[str, str]] = {}
    try:
        nodes = store.children_data(USERS)
    except NoNodeError:
        return users
    for child, node in nodes.items():
        try:
            settings = _settings(f"{USERS}/{child}", node.data)
            if settings:
                users[user_name(child)] = settings
        except DataDirectoryError as error:
            log.error("a user is left out: %s", error.message)
    return users


def load_quotas(store: MetadataStore) -> dict[QuotaEntity, Mapping[str, str]]:
    """The settings of clients, clients of users, and addresses. One that cannot be read is left
    out, and has no quota of its own."""
    folders = [CLIENTS, IPS]
    with suppress(NoNodeError):
        folders += [f"{USERS}/{child}/{_OF_A_USER}" for child in store.children(USERS)]
    found: dict[QuotaEntity, Mapping[str, str]] = {}
    for folder in folders:
        with suppress(NoNodeError):
            nodes = store.children_data(folder)
            for child, node in nodes.items():
                right = unquote(child)
                if folder != IPS or right == child or right not in nodes:
                    _note_quota(found, f"{folder}/{child}", node)
    return found


def _note_quota(found: dict[QuotaEntity, Mapping[str, str]], path: str, node: Node) -> None:
    try:
        entity, settings = entity_at(path), _settings(path, node.data)
    except DataDirectoryError as error:
        log.error("a quota is left out: %s", error.message)
        return
    if entity is not None and settings:
        found[entity] = settings


def load_user(store: Tree, name: str) -> UserNode:
    """DataDirectoryError: it cannot be read; ValueError: no node can be called so."""
    return load_entity(store, QuotaEntity(user=name))


def load_entity(store: Tree, entity: QuotaEntity) -> UserNode:
    """DataDirectoryError: it cannot be read; ValueError: no node can be called so."""
    path = entity_path(entity)
    node, earlier = _node(store, path), None
    if entity.ip is not None:
        quoted = f"{IPS}/{_node_name(entity.ip)}"  # an earlier kbroker quoted the colons
        earlier = _node(store, quoted) if quoted != path else None
    settings: Mapping[str, str] = {}
    if node is not None:
        settings = _settings(path, node.data)
    elif earlier is not None:
        settings = _settings(quoted, earlier.data)
    return UserNode(
        path,
        settings,
        node.version if node is not None else None,
        Delete(quoted, earlier.version) if earlier is not None else None,
    )


def _node(store: Tree, path: str) -> Node | None:
    with suppress(NoNodeError):
        return store.get(path)
    return None


def _settings(path: str, data: bytes) -> dict[str, str]:
    return records.decode_configs(path, data) if data else {}


def writing_user(store: Tree, node: UserNode, settings: Mapping[str, str]) -> list[Operation]:
    """What makes these the settings, if the node is as it was read. Of a client of a user the
    parents are made or removed, too."""
    removing = [] if node.earlier is None else [node.earlier]
    if node.version is None:
        if not settings:
            return [*removing]
        creating = Create(node.path, records.encode_configs(settings))
        return [*_making_parents(store, node), creating, *removing]
    if not settings and not store.children(node.path):
        return [Delete(node.path, node.version), *_removing_parents(store, node), *removing]
    return [Set(node.path, records.encode_configs(settings), node.version), *removing]


def _parents(node: UserNode) -> tuple[str, str] | None:
    """Of a client of a user: the node of the user, and the folder of its clients."""
    folder = parent_of(node.path)
    if folder in (CLIENTS, USERS) or not node.path.startswith(f"{USERS}/"):
        return None
    return parent_of(folder), folder


def _making_parents(store: Tree, node: UserNode) -> list[Operation]:
    parents = _parents(node) or ()
    return [Create(path) for path in parents if not store.exists(path)]


def _removing_parents(store: Tree, node: UserNode) -> list[Operation]:
    parents = _parents(node)
    if parents is None:
        return []
    user, folder = parents
    if len(store.children(folder)) > 1:
        return []
    found = store.get(user)
    if len(store.children(user)) > 1 or _settings(user, found.data):
        return [Delete(folder)]
    return [Delete(folder), Delete(user, found.version)]


# --- notices --------------------------------------------------------------------------------------


def notice_number(child: str) -> int | None:
    """None: it is no notice."""
    digits = child.removeprefix(_NOTICE)
    is_number = child.startswith(_NOTICE) and digits.isascii() and digits.isdecimal()
    return int(digits) if is_number and len(digits) <= len(str(records.INT64_MAX)) else None


def notices(store: MetadataStore) -> list[int]:
    """The numbers of those that are there, in their order."""
    try:
        found = map(notice_number, store.children(NOTICES))
    except NoNodeError:
        return []
    return sorted(number for number in found if number is not None)


def writing_notices(
    numbers: Sequence[int], entities: Iterable[QuotaEntity]
) -> tuple[list[Operation], set[int]]:
    """What notes that these have changed, and the numbers of these notices; `numbers` are of the
    notices that are there, the oldest of which are removed."""
    first = numbers[-1] + 1 if numbers else 0
    new = dict(enumerate(entities, first))
    operations: list[Operation] = []
    for number, entity in new.items():
        path = entity_path(entity).removeprefix(_CONFIG)
        data = records.encode_fields(_NOTICE_VERSION, entity_path=path)
        operations.append(Create(_notice_path(number), data))
    surplus = max(0, len(numbers) + len(new) - NOTICES_KEPT_MAX)
    removals: list[Operation] = [Delete(_notice_path(number)) for number in numbers[:surplus]]
    return [*operations, *removals], set(new)


def noticed(store: MetadataStore, numbers: Iterable[int]) -> Iterator[QuotaEntity | None]:
    """What has changed by these notices, or None for something else or a notice that cannot be
    read."""
    paths = [_notice_path(number) for number in numbers]
    for path, node in store.get_many(paths).items():
        entity = None
        with suppress(DataDirectoryError):
            named = records.Fields(path, node.data, _NOTICE_VERSION).get("entity_path", str)
            entity = entity_at(named)
        yield entity


def _notice_path(number: int) -> str:
    return f"{NOTICES}/{_NOTICE}{number:010d}"
