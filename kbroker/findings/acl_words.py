"""The words in which ACLs are written and read: names of operations, types and resources.

Names of operations are Kafka's, in any case (`Read`, `AlterConfigs`). Pure functions; what is no
such word is a UsageError.
"""

from __future__ import annotations

from typing import Final

from kbroker.errors import UsageError
from kbroker.security.rights import CLUSTER_NAME, OPERATIONS, Operation, ResourceType


def _kafkas(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


OPERATION_NAMES: Final[dict[Operation, str]] = {
    each: _kafkas(each.name) for each in Operation if each is not Operation.ANY
}
# How a resource is written in an argument and in a table.
TYPE_NAMES: Final[dict[ResourceType, str]] = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.CLUSTER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
    ResourceType.DELEGATION_TOKEN: "delegation-token",
    ResourceType.USER: "user-principal",
}
# Those of the types that `OPERATIONS` leaves out, since no request asks for them all.
_MORE: Final = {
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}


def java_text(host: str) -> str:
    """As Apache Kafka writes the address of a client."""
    from kbroker.security.hosts import java_host

    return java_host(host)


def check_principal(text: str) -> None:
    from kbroker.security.authorizer import parse_principal

    try:
        parse_principal(text)
    except ValueError as error:
        raise UsageError(str(error), f"write User:{text}") from None


def parse_operation(text: str) -> Operation:
    wanted = text.replace("_", "").replace("-", "").lower()
    for operation, name in OPERATION_NAMES.items():
        if name.lower() == wanted:
            return operation
    raise UsageError(
        f"there is no operation '{text}'", f"use one of {', '.join(OPERATION_NAMES.values())}"
    )


def check_operation(type_: ResourceType, operation: Operation) -> None:
    possible = (*(_MORE.get(type_) or OPERATIONS[type_]), Operation.ALL)
    if operation not in possible:
        names = ", ".join(OPERATION_NAMES[each] for each in possible)
        raise UsageError(
            f"a {TYPE_NAMES[type_]} has no operation {OPERATION_NAMES[operation]}", f"use {names}"
        )


def parse_resource(text: str) -> tuple[ResourceType, str]:
    """`topic:orders`, `group:shop`, `cluster`, and so on."""
    kind, colon, name = text.partition(":")
    for type_, label in TYPE_NAMES.items():
        if kind.lower() != label:
            continue
        if type_ is ResourceType.CLUSTER:
            if name in ("", CLUSTER_NAME):
                return type_, CLUSTER_NAME
            break
        if name:
            return type_, name
        break
    forms = ", ".join(
        label if type_ is ResourceType.CLUSTER else f"{label}:NAME"
        for type_, label in TYPE_NAMES.items()
    )
    why = "is no resource" if colon or kind else "names no resource"
    raise UsageError(f"'{text}' {why}", f"write one of {forms}")
