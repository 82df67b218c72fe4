"""Who may come in and do what, as the controller changes it and reads it: users and quotas, ACLs,
and delegation tokens.

Place in the flow: `Controller` gives the requests and notices about these to this part, which has a
part for each kind. All of them are nodes that the tools of Apache Kafka 3.9 write as well, with a
notice in a folder that the controller watches.

On the controller's thread only; no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.metadata.controller.acl_changes import AclChanges, AclsChanged, CreateAcls, DeleteAcls
from kbroker.metadata.controller.acl_records import CHANGES as ACL_NOTICES
from kbroker.metadata.controller.events import AlterUsers, ConfigNotices
from kbroker.metadata.controller.token_changes import (
    CreateToken,
    ExpireToken,
    RenewToken,
    SweepTokens,
    TokenChanges,
    TokenEvent,
    TokensChanged,
)
from kbroker.metadata.controller.token_records import CHANGES as TOKEN_NOTICES
from kbroker.metadata.controller.user_changes import UserChanges
from kbroker.metadata.controller.user_nodes import NOTICES as USER_NOTICES
from kbroker.metadata.controller.user_nodes import load_users

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.metadata.controller.nodes import MetadataNodes
    from kbroker.metadata.controller.propagation import Propagation
    from kbroker.metadata.controller.topic_changes import Settings
    from kbroker.metadata.image import ClusterImage
    from kbroker.metadata.store.base import MetadataStore
    from kbroker.security.acl_set import AclSet

AccessEvent = AlterUsers | CreateAcls | DeleteAcls | TokenEvent
ACCESS_EVENTS: Final = (
    AlterUsers,
    CreateAcls,
    DeleteAcls,
    CreateToken,
    RenewToken,
    ExpireToken,
    SweepTokens,
)
NoticeEvent = ConfigNotices | AclsChanged | TokensChanged
NOTICE_EVENTS: Final = (ConfigNotices, AclsChanged, TokensChanged)


class AccessChanges:
    """See the head of this file."""

    def __init__(
        self, propagation: Propagation, clock: Clock, config: Settings, *, has_notices: bool
    ) -> None:
        """`has_notices`: the store is ZooKeeper, which others write to."""
        self._users = UserChanges(propagation, has_notices=has_notices)
        self._acls = AclChanges(propagation, clock)
        self._tokens = TokenChanges(propagation, clock, config, has_notices=has_notices)
        others = ((USER_NOTICES, ConfigNotices()), (TOKEN_NOTICES, TokensChanged()))
        # The folders of notices, and what comes when one of them has another child.
        self.watched: Final[tuple[tuple[str, NoticeEvent], ...]] = (
            *((folder, AclsChanged()) for folder in ACL_NOTICES),
            *(others if has_notices else ()),
        )

    def handle(self, nodes: MetadataNodes, event: AccessEvent) -> Callable[[], None]:
        """The answer to give."""
        if isinstance(event, AlterUsers):
            return partial(event.done, self._users.alter(nodes, event.changes))
        if isinstance(event, CreateAcls | DeleteAcls):
            return self._acls.handle(nodes, event)
        return self._tokens.handle(nodes, event)

    def notices_came(self, nodes: MetadataNodes, event: NoticeEvent) -> bool:
        """Follow what others have noted. False: it is about something else, too."""
        if isinstance(event, ConfigNotices):
            return self._users.notices_came(nodes)
        if isinstance(event, AclsChanged):
            return self._acls.notices_came(nodes)
        return self._tokens.notices_came(nodes)

    def load_acls(self, nodes: MetadataNodes) -> AclSet:
        """All ACLs of the store; before the rest of it is read."""
        return self._acls.load(nodes)

    def read_into(self, image: ClusterImage, store: MetadataStore) -> ClusterImage:
        """The image with all users, quotas and tokens of the store."""
        return self._tokens.read_into(self._users.read_into(image, store), store)

    def without_controller(self, image: ClusterImage, store: MetadataStore) -> ClusterImage:
        """The image with the users and ACLs of the store, for a broker that the controller has not
        reached yet: it may have to log in, and to have a right, to do so."""
        return image.with_all_users(load_users(store)).with_acls(self._acls.read(store))
