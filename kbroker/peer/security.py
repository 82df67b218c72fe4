"""Users, ACLs, quotas and tokens from outside: what a cluster describes of them, and alters.

KafkaError: the broker refuses, as SECURITY_DISABLED where there is no authorizer. Owner: the
client's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.peer.acl_messages import CreateResult, DeleteResult
    from kbroker.peer.client import Client
    from kbroker.peer.quota_messages import EntityQuotas, QuotaResult
    from kbroker.peer.token_messages import KnownToken
    from kbroker.peer.user_messages import NewPassword, UserResult, UserScram
    from kbroker.quota.entities import QuotaEntity
    from kbroker.security.acl_filter import AclFilter
    from kbroker.security.acls import Acl
    from kbroker.security.scram import ScramMechanism
    from kbroker.security.session import Principal


class Security:
    """What may be asked about the security of a client's cluster; a command imports the messages
    that it needs."""

    def __init__(self, client: Client) -> None:
        self._cluster: Final = client.cluster

    def users(self, names: Sequence[str] | None = None) -> list[UserScram]:
        """Users with SCRAM credentials; None: all."""
        from kbroker.peer.user_messages import decode_describe_users, encode_describe_users

        return self._cluster.anywhere(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            lambda version: encode_describe_users(version, names),
            decode_describe_users,
        )

    def alter_users(
        self, new: Sequence[NewPassword], removed: Sequence[tuple[str, ScramMechanism]]
    ) -> list[UserResult]:
        """In one request, which may name a user once."""
        from kbroker.peer.user_messages import decode_alter_users, encode_alter_users

        return self._cluster.at_controller(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            lambda version: encode_alter_users(version, new, removed),
            decode_alter_users,
        )

    def acls(self, wanted: AclFilter) -> list[Acl]:
        from kbroker.peer.acl_messages import decode_describe_acls, encode_describe_acls

        return self._cluster.anywhere(
            ApiKey.DESCRIBE_ACLS,
            lambda version: encode_describe_acls(version, wanted),
            decode_describe_acls,
        )

    def create_acls(self, acls: Sequence[Acl]) -> list[CreateResult]:
        """The results are in the order of the ACLs."""
        from kbroker.peer.acl_messages import decode_create_acls, encode_create_acls

        return self._cluster.at_controller(
            ApiKey.CREATE_ACLS,
            lambda version: encode_create_acls(version, acls),
            decode_create_acls,
        )

    def delete_acls(self, filters: Sequence[AclFilter]) -> list[DeleteResult]:
        """The results are in the order of the filters."""
        from kbroker.peer.acl_messages import decode_delete_acls, encode_delete_acls

        return self._cluster.at_controller(
            ApiKey.DELETE_ACLS,
            lambda version: encode_delete_acls(version, filters),
            decode_delete_acls,
        )

    def quotas(self, entity: QuotaEntity | None = None) -> list[EntityQuotas]:
        """None: of all entities; else of those that have its parts."""
        from kbroker.peer.quota_messages import decode_describe_quotas, encode_describe_quotas

        return self._cluster.anywhere(
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            lambda version: encode_describe_quotas(version, entity),
            decode_describe_quotas,
        )

    def alter_quotas(
        self, entity: QuotaEntity, quotas: Mapping[str, float], removed: Sequence[str]
    ) -> list[QuotaResult]:
        """Others of the same entity stay."""
        from kbroker.peer.quota_messages import decode_alter_quotas, encode_alter_quotas

        return self._cluster.at_controller(
            ApiKey.ALTER_CLIENT_QUOTAS,
            lambda version: encode_alter_quotas(version, entity, quotas, removed),
            decode_alter_quotas,
        )

    def tokens(self, owners: Sequence[Principal] | None = None) -> list[KnownToken]:
        """None: all that the client may see."""
        from kbroker.peer.token_messages import decode_describe_tokens, encode_describe_tokens

        return self._cluster.anywhere(
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
            lambda version: encode_describe_tokens(version, owners),
            decode_describe_tokens,
        )
