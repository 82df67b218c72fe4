"""Refused requests: the rights that a principal lacks, or requests that were denied just now.

The decision is the broker's own (`security/authorizer.py`), with the ACLs of the published image.
Without a principal in the question, the denials of the last seconds are given that concern the
subject: the log of denials has them for as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.observe.why.facts import TOPICS_MAX, About, Denial, Question
from kbroker.outside_text import label
from kbroker.security.rights import RESOURCE_NAMES, Operation, Resource, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.services import Services
    from kbroker.security.acl_set import AclSet
    from kbroker.security.authorizer import AclAuthorizer

# No ACL can have it, since it is no address: the answer is that for a host without ACLs of its own.
_ANY_HOST: Final = "any host"


def denials(services: Services, question: Question, topics: Sequence[str]) -> Iterator[Denial]:
    """`topics`: those that the subject needs."""
    from kbroker.security.authorizer import AclAuthorizer

    authorizer = services.authorizer
    if not isinstance(authorizer, AclAuthorizer):
        return
    refusals = _Refusals(services.controller.image.acls, authorizer)
    needs = list(_needs(question, topics[:TOPICS_MAX]))
    if question.principal is not None:
        from kbroker.security.hosts import java_host

        host = _ANY_HOST if question.host is None else java_host(question.host)
        for operation, resource in needs:
            yield from refusals.of(question.principal, host, operation, resource)
        return
    named = {(operation, label(resource.name)): resource for operation, resource in needs}
    # A client asks by several APIs.
    for principal, host, operation, kept in dict.fromkeys(
        (each.principal, each.host, each.operation, each.resource)
        for each in authorizer.denied_lately()
    ):
        found = named.get((operation, kept.name))
        if found is not None and found.type is kept.type:
            for denial in refusals.of(
                principal, host, operation, found
            ):  # if it is not allowed now
                yield denial._replace(lately=True)


def _needs(question: Question, topics: Sequence[str]) -> Iterator[tuple[Operation, Resource]]:
    if question.about is About.CONSUMER:
        yield Operation.READ, Resource(ResourceType.GROUP, question.name)
    for topic in topics:
        if question.about in (About.PRODUCE, About.PARTITION):
            yield Operation.WRITE, Resource(ResourceType.TOPIC, topic)
        if question.about in (About.CONSUMER, About.PARTITION):
            yield Operation.READ, Resource(ResourceType.TOPIC, topic)


class _Refusals(NamedTuple):
    acls: AclSet
    authorizer: AclAuthorizer

    def of(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> Iterator[Denial]:
        decision = self.authorizer.rules.decide(self.acls, principal, host, operation, *resource)
        if not decision.allowed:
            named = f"{RESOURCE_NAMES[resource.type].lower()}:{resource.name}"
            yield Denial(principal, host, operation.name.capitalize(), named, decision.rule)
