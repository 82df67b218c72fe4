"""The nodes of users: their SCRAM credentials, and whatever else Apache Kafka 3.9 keeps of a user.

    /config/users/NAME                  {"version":1,"config":{"SCRAM-SHA-256":"salt=...,..."}}
    /config/changes/config_change_N     {"version":2,"entity_path":"users/NAME"}: NAME has changed

Place in the flow: as `nodes.py` for topics. Names are in the form of a URL's query, as Kafka 3.9
writes them; `<default>` is for every user. Settings that mean nothing here are kept. A node below
`/config/users/NAME` (quotas of one client id) keeps NAME's node there, without settings.

A change in ZooKeeper has a notice, by which Apache Kafka's tools and brokers learn of it, and
kbroker of theirs: kafka-configs 3.9 writes the same two nodes. Of notices the last ones are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from kbroker.errors import DataDirectoryError
from kbroker.limits import NOTICES_KEPT_MAX
from kbroker.metadata.controller import records
from kbroker.metadata.image import EVERY_USER
from kbroker.metadata.store.base import (
    Create,
    Delete,
    MetadataStore,
    NoNodeError,
    Operation,
    Set,
)

log = logging.getLogger("kbroker.controller")

USERS: Final = "/config/users"
NOTICES: Final = "/config/changes"
_NOTICE: Final = "config_change_"
_NOTICE_VERSION: Final = 2
_OF_USERS: Final = "users/"
_DEFAULT: Final = "<default>"


class UserNode(NamedTuple):
    """As it was read; without a version it is not there."""

    path: str
    settings: Mapping[str, str]
    version: int | None


def user_path(name: str) -> str:
    """ValueError: no node can be called so."""
    return f"{USERS}/{_node_name(name)}"


def _node_name(name: str) -> str:
    if name == EVERY_USER:
        return _DEFAULT
    quoted = quote(name, safe="").replace("~", "%7E")
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


def load_user(store: MetadataStore, name: str) -> UserNode:
    """DataDirectoryError: it cannot be read; ValueError: no node can be called so."""
    path = user_path(name)
    try:
        node = store.get(path)
    except NoNodeError:
        return UserNode(path, {}, None)
    return UserNode(path, _settings(path, node.data), node.version)


def _settings(path: str, data: bytes) -> dict[str, str]:
    return records.decode_configs(path, data) if data else {}


def writing_user(
    store: MetadataStore, node: UserNode, settings: Mapping[str, str]
) -> list[Operation]:
    """What makes these the settings, if the node is as it was read."""
    if node.version is None:
        return [Create(node.path, records.encode_configs(settings))] if settings else []
    if not settings and not store.children(node.path):
        return [Delete(node.path, node.version)]
    return [Set(node.path, records.encode_configs(settings), node.version)]


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
    numbers: Sequence[int], names: Iterable[str]
) -> tuple[list[Operation], set[int]]:
    """What notes that these users have changed, and the numbers of these notices; `numbers` are of
    the notices that are there, the oldest of which are removed."""
    first = numbers[-1] + 1 if numbers else 0
    new = dict(enumerate(names, first))
    operations: list[Operation] = []
    for number, name in new.items():
        entity = _OF_USERS + _node_name(name)
        data = records.encode_fields(_NOTICE_VERSION, entity_path=entity)
        operations.append(Create(_notice_path(number), data))
    surplus = max(0, len(numbers) + len(new) - NOTICES_KEPT_MAX)
    removals: list[Operation] = [Delete(_notice_path(number)) for number in numbers[:surplus]]
    return [*operations, *removals], set(new)


def noticed(store: MetadataStore, numbers: Iterable[int]) -> Iterator[str | None]:
    """Whose settings have changed by these notices: the name of a user, or None for something else
    or a notice that cannot be read."""
    paths = [_notice_path(number) for number in numbers]
    for path, node in store.get_many(paths).items():
        with suppress(DataDirectoryError):
            entity = records.Fields(path, node.data, _NOTICE_VERSION).get("entity_path", str)
            kind, _, child = entity.partition("/")
            if kind + "/" == _OF_USERS and child and "/" not in child:
                yield user_name(child)
                continue
            if kind + "/" == _OF_USERS:  # quotas of a client id, which are not here
                continue
        yield None


def _notice_path(number: int) -> str:
    return f"{NOTICES}/{_NOTICE}{number:010d}"
