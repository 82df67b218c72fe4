"""Random ACLs and questions, asked of Apache Kafka's authorizer and of ours.

    python -m tests.model.acl_decisions --questions 1000000 --seed 1

Names, prefixes, principals and hosts come from a few, so that ACLs meet: nested prefixes, the same
name as literal and prefix, the wildcard in each place. Both say it in a line of their log, which
names the ACL that decided, so the lines are compared, not the verdicts alone.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from typing import Final

from kbroker.security.acl_set import AclSet
from kbroker.security.acls import Acl, Entry, Pattern, PatternType, Permission
from kbroker.security.authorizer import Rules, super_users
from kbroker.security.denials import line
from kbroker.security.hosts import java_host
from kbroker.security.rights import Operation, Resource, ResourceType
from kbroker.types import ApiKey
from tests.support.acls import acl_set
from tests.support.kafka_decisions import (
    KafkaDecisions,
    Question,
    ask,
    configure,
    replace_acls,
)

QUESTIONS_A_SET: Final = 100
# Of an ACL; a question is about an operation that is none of these.
_OPERATIONS: Final = [each for each in Operation if each is not Operation.ANY]
_ASKED: Final = [each for each in _OPERATIONS if each is not Operation.ALL]
_TYPES: Final = [each for each in ResourceType if each is not ResourceType.ANY]
_NAMES: Final = (
    "a",
    "ab",
    "abc",
    "abd",
    "b",
    "ba",
    "a.b",
    "kafka-cluster",
    "é",
    "\uff21",
    "hardcode",
)
_USERS: Final = ("anna", "bert", "carl", "an")
_ADDRESSES: Final = ("127.0.0.1", "10.0.0.1", "::1", "2001:db8::a:0:1", "::ffff:10.0.0.1")
_HOSTS: Final = ("*", "127.0.0.1", "10.0.0.1", "0:0:0:0:0:0:0:1", "::1", "2001:db8:0:0:0:a:0:1")
_SUPER: Final = ("", "User:carl", "User:carl; Group:anna", "User:dora")


class Round:
    """An authorizer's settings, ACLs and questions."""

    def __init__(self, dice: random.Random) -> None:
        self.super_users = dice.choice(_SUPER)
        self.allow_if_no_acl = dice.random() < 0.5
        # Two types of the six in most rounds: ACLs meet more often.
        self._types = dice.sample(_TYPES, dice.choice((1, 2, 6)))
        count = dice.choice((0, 1, 2, 5, 20, 100))
        self.acls = list(dict.fromkeys(self._acl(dice) for _ in range(count)))
        self.questions = [self._question(dice) for _ in range(QUESTIONS_A_SET)]

    def _name(self, dice: random.Random) -> str:
        return "".join(dice.choices(_NAMES, k=dice.choice((1, 1, 2, 3))))

    def _acl(self, dice: random.Random) -> Acl:
        name = "*" if dice.random() < 0.15 else self._name(dice)
        kind = dice.choice((PatternType.LITERAL, PatternType.PREFIXED))
        principal = dice.choice(("User:*", *(f"User:{user}" for user in _USERS), "Group:anna"))
        permission = dice.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY))
        entry = Entry(principal, dice.choice(_HOSTS), dice.choice(_OPERATIONS), permission)
        return Acl(Pattern(dice.choice(self._types), kind, name), entry)

    def _question(self, dice: random.Random) -> Question:
        by_type = dice.random() < 0.1
        type_ = dice.choice(self._types)
        return Question(
            (dice.choice(("User", "User", "User", "Group")), dice.choice(_USERS)),
            dice.choice(_ADDRESSES),
            dice.choice(_ASKED),
            type_,
            None if by_type else self._name(dice),
        )

    def commands(self) -> bytes:
        head = configure(self.super_users, self.allow_if_no_acl) + replace_acls(self.acls)
        return head + ask(self.questions)

    def our_answers(self) -> Iterator[str]:
        acls = self._our_set()
        rules = Rules(super_users(self.super_users), self.allow_if_no_acl)
        for question in self.questions:
            yield _answer(rules, acls, question)

    def _our_set(self) -> AclSet:
        """Made by halves, so that a set that was changed is looked at, too."""
        half = len(self.acls) // 2
        made = acl_set(self.acls[:half])
        for acl in self.acls[half:]:
            made = made.with_changed({acl.pattern: made.of(acl.pattern).with_entries([acl.entry])})
        return made


def _answer(rules: Rules, acls: AclSet, question: Question) -> str:
    principal, host = ":".join(question.principal), java_host(question.host)
    if question.name is None:
        found = rules.decide_by_type(acls, principal, host, question.operation, question.type)
        return str(found).lower()
    decision = rules.decide(acls, principal, host, question.operation, question.type, question.name)
    resource = Resource(question.type, question.name)
    words = principal, host, question.operation, resource, ApiKey.FETCH, 1, decision.rule
    return line(*words, allowed=decision.allowed)


def differences(seed: int, rounds: int) -> Iterator[str]:
    dice = random.Random(seed)
    made = [Round(dice) for _ in range(rounds)]
    with KafkaDecisions() as kafka:
        theirs = iter(
            kafka.answers(b"".join(each.commands() for each in made), rounds * QUESTIONS_A_SET)
        )
        for number, each in enumerate(made):
            for question, ours in zip(each.questions, each.our_answers(), strict=True):
                expected = next(theirs)
                if ours != expected:
                    acls = "".join(f"\n  {acl}" for acl in each.acls)
                    yield (
                        f"seed {seed}, round {number}, {question}:\n"
                        f"  Kafka: {expected}\n  here:  {ours}{acls}"
                    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--questions", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found, rounds_at_a_time = 0, 1_000
    left = -(-arguments.questions // QUESTIONS_A_SET)
    seed = arguments.seed
    while left:
        rounds = min(left, rounds_at_a_time)
        for each in differences(seed, rounds):
            found += 1
            print(each)
        seed, left = seed + 1, left - rounds
    print(f"{arguments.questions} questions, {found} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
