"""Users that are written into a metadata store without a broker: the first user of a cluster.

Place in the flow: `kbroker user` with a data directory whose broker is stopped, and
`kbroker start --add-scram` before the broker itself opens the store. On an embedded store the
directory's lock keeps a running broker out; in ZooKeeper a change has a notice as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from kbroker.errors import MetadataStoreError, UserError
from kbroker.limits import USER_CHANGE_TRIES_MAX, USER_NAME_BYTES_MAX
from kbroker.metadata.controller.user_nodes import (
    NOTICES,
    USERS,
    UserNode,
    load_user,
    load_users,
    notices,
    user_path,
    writing_notices,
    writing_user,
)
from kbroker.metadata.meta_properties import FILE_NAME as META_PROPERTIES
from kbroker.metadata.store.base import MetadataStore, MultiError, check_path
from kbroker.metadata.store.embedded import DATABASE_FILE, EmbeddedStore
from kbroker.quota.entities import QuotaEntity
from kbroker.security.scram import ScramCredential, ScramMechanism


class FirstUser(NamedTuple):
    name: str
    mechanism: ScramMechanism
    credential: ScramCredential


def users_in(directory: Path) -> Mapping[str, Mapping[str, str]]:
    """The settings of all users in a directory's store; DataDirectoryError: it cannot be read.
    UserError: there is no store."""
    _check_store(directory, may_be_new=False)
    with closing(EmbeddedStore.open(directory)) as store:
        return load_users(store)


def add_in(directory: Path, users: Sequence[FirstUser]) -> list[str]:
    """Give these users these credentials; the names of those that had none."""
    _check_store(directory, may_be_new=True)
    with closing(EmbeddedStore.open(directory)) as store:
        return add(store, users)


def add(
    store: MetadataStore,
    users: Sequence[FirstUser],
    *,
    only_new: bool = False,
    with_notices: bool = False,
) -> list[str]:
    """The names of those that did not have a credential of that mechanism; `only_new`: the
    credentials of the others stay as they are. `with_notices`: in ZooKeeper."""
    for each in users:
        _check_name(each.name)
    store.ensure(USERS)
    return [each.name for each in users if _add(store, each, only_new, with_notices)]


def _check_store(directory: Path, *, may_be_new: bool) -> None:
    """UserError: this directory's broker has its metadata elsewhere, or there is none at all."""
    if (directory / DATABASE_FILE).exists():
        return
    if (directory / META_PROPERTIES).exists() or not may_be_new:
        raise UserError(
            f"{directory} has no metadata of its own",
            "of several log.dirs name the first; for ZooKeeper use kbroker start --add-scram",
        )


def _check_name(name: str) -> None:
    """UserError: no user can log in by it, or no node can be called so."""
    try:
        size_bytes = len(name.encode())
        check_path(user_path(name))
    except ValueError:
        raise UserError(f"a user called {name!r} cannot be stored", "choose another name") from None
    if not 0 < size_bytes <= USER_NAME_BYTES_MAX:
        raise UserError(
            f"a user's name has 1 to {USER_NAME_BYTES_MAX} bytes, not {size_bytes}",
            "choose another name",
        )


def _add(store: MetadataStore, user: FirstUser, only_new: bool, with_notices: bool) -> bool:
    """Whether it had none. Other brokers that start may add the same at the same time."""
    for _ in range(USER_CHANGE_TRIES_MAX):
        node = load_user(store, user.name)
        is_new = user.mechanism.value not in node.settings
        if only_new and not is_new:
            return False
        settings = {**node.settings, user.mechanism.value: str(user.credential)}
        try:
            _write(store, node, user.name, settings, with_notices=with_notices)
        except MultiError:
            continue
        return is_new
    raise MetadataStoreError(f"others change user {user.name} all the time", "try again")


def remove_in(directory: Path, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
    """UserError: the user has none of these."""
    _check_name(name)
    _check_store(directory, may_be_new=False)
    with closing(EmbeddedStore.open(directory)) as store:
        node = load_user(store, name)
        left = {
            key: value
            for key, value in node.settings.items()
            if key not in {each.value for each in mechanisms}
        }
        if left == node.settings:
            raise UserError(f"user {name} has no such credential", "see kbroker user list")
        _write(store, node, name, left)


def _write(
    store: MetadataStore,
    node: UserNode,
    name: str,
    settings: Mapping[str, str],
    *,
    with_notices: bool = False,
) -> None:
    operations = writing_user(store, node, settings)
    if with_notices:
        store.ensure(NOTICES)
        operations += writing_notices(notices(store), [QuotaEntity(user=name)])[0]
    store.multi(operations)
