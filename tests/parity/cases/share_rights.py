"""Rights to the offsets of share groups."""

from __future__ import annotations

from tests.parity.book import Book
from tests.parity.cases._rights import add_rights, names, topics
from tests.parity.cases.share_group_offsets import altered, deleted, described
from tests.parity.sides import SHARE_AUTHORIZER
from tests.parity.talk import Talk

book = Book(setup=SHARE_AUTHORIZER)
cases = book.cases


def groups(talk: Talk) -> None:
    """Empty ones that have offsets of both topics."""
    topics(talk)
    starts = [(talk.name(each), [(0, 1)]) for each in ("t", "u")]
    for group in ("g", "h"):

        def is_made(group: str = group) -> bool:
            made = talk.quietly(altered(talk.name(group), *starts))
            return not any(p.error_code.value for topic in made.responses for p in topic.partitions)

        talk.until(is_made)


ALTERS = ["READ G g", "READ G g, READ T t, READ T m", "READ T t", "ALTER G g, READ T t",
          "READ G g, DESCRIBE T t"]  # fmt: skip

for all_topics in (False, True):
    add_rights(
        book,
        "DescribeShareGroupOffsets of all topics" if all_topics else "DescribeShareGroupOffsets",
        (0, 1),
        ["DESCRIBE G g", "DESCRIBE G g, DESCRIBE T t", "READ G g, READ T t", "DESCRIBE T t"],
        lambda talk, version, all_topics=all_topics: described(
            version,
            *(
                (talk.name(group), None if all_topics else [(each, [0]) for each in names(talk)])
                for group in ("h", "g", "no")
            ),
        ),
        prepare=groups,
        setup=SHARE_AUTHORIZER,
    )
add_rights(
    book,
    "AlterShareGroupOffsets",
    [0],
    ALTERS,
    lambda talk, version: altered(talk.name("g"), *((name, [(0, 2)]) for name in names(talk))),
    prepare=groups,
    setup=SHARE_AUTHORIZER,
)
add_rights(
    book,
    "DeleteShareGroupOffsets",
    [0],
    ["DELETE G g", "DELETE G g, READ T t, READ T m", "READ T t", "READ G g, READ T t"],
    lambda talk, version: deleted(talk.name("g"), *names(talk)),
    prepare=groups,
    setup=SHARE_AUTHORIZER,
)
