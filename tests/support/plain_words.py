"""Words that the project does not use in prose, each with what to write instead.

Prose is to read as Apache Kafka's own documentation does: subject, verb, object; the cause before
the effect. `LEFT` lists the rooms of code and the documents that still have such words, each with
its count: a ceiling, which is lowered in the commit that rewrites the room. A room that is not
listed has none of them. `NAMES_LEFT` is the same for the names of tests, which are prose, too: in
them a `who` or a `what` is a clause in the place of a noun. The words in recorded answers of Apache
Kafka are data: the names of cases and groups are keys there, and a new recording would be needed.

    python -m tests.support.plain_words            the counts of today, as lines of both
    python -m tests.support.plain_words PATH...    each place in these files
"""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.source_tree import ROOT, relative, source_files

SUFFIXES: Final = (".py", ".pyx", ".pxd", ".pyi")
FOLDERS: Final = ("kbroker", "lab", "perf", "spark_jobs", "tests")
# These define the words.
EXCEPT: Final = ("tests/support/plain_words.py", "tests/unit/test_plain_words.py")


class Word(NamedTuple):
    pattern: re.Pattern[str]
    instead: str


def _word(pattern: str, instead: str, flags: re.RegexFlag = re.IGNORECASE) -> Word:
    return Word(re.compile(pattern, flags), instead)


WORDS: Final = (
    _word(r"\b(?:whoever|whomever|whom)\b", "name it: the client, the broker, the caller that ..."),
    _word(r"\b(?:nobody|no one)\b", "no client, no broker; or say what does not happen"),
    _word(r"\b(?:some|any|every)body\b", "a client, another broker, an operator; any, all"),
    _word(r"\btold\b", "notified, answered with, sent"),
    _word(r"\bshown\b", "published, listed, returned"),
    _word(r"\b(?:stands|stood)\b", "is, is stored, is written, waits"),
    _word(r"\bbehind\b", "after; lags by; waits for"),
    _word(r"\bdoom(?:s|ed)?\b", "schedule for deletion, delete"),
    _word(r"\bobey(?:s|ed)?\b", "accept, follow"),
    _word(r"\b(?:hears?|heard)\b", "receive, is notified"),
    _word(
        r"\b(?:at|by|for|from|of|on|than|to|with) (?:who|what)\b",
        "name the thing: 'the replicas that lead', not 'those of who leads'",
    ),
    _word(
        r"(?:^|(?<=[.|:;] ))(?:[-*] |#+ )?(?:Who|What)\b[^.?!|]*[.|]",
        "a noun as the subject: 'The record that ...', not 'What ...'",
        re.MULTILINE,
    ),
)

# The exceptions: names of fields, columns, options and members that programs read.
_FIELDS: Final = re.compile(r'"(?:behind|BEHIND|old-controller-obeyed|nobody-0{8}[-048]+)"')
_PARITY: Final = ROOT / "tests" / "parity"
_STRING: Final = re.compile(r'"([^"\n]*)"')

# Of the documents: generated parts, blocks of code, code in a line, and targets of links.
_GENERATED_PAGE: Final = "<!-- Written by"
_NOT_PROSE: Final = (
    re.compile(r"<!-- (?:begin: generated|measured|drawn|written).*?<!-- end -->", re.DOTALL),
    re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE),
    re.compile(r"^    .*$", re.MULTILINE),
)
_CODE_IN_LINE: Final = re.compile(r"`[^`]*`")
_TARGET: Final = re.compile(r"\]\([^)]*\)")
# A test's name, and a clause in it.
_TEST: Final = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_CLAUSE: Final = re.compile(r"_(?:who|what)(?=_|$)")
_WRAP: Final = re.compile(r"[ \t]*\n(?=[a-z(`])")


def prose_of(document: str) -> str:
    """A document's text as its readers see it, a sentence on one line."""
    if document.startswith(_GENERATED_PAGE):
        return ""
    for pattern in _NOT_PROSE:
        document = pattern.sub("", document)
    document = _TARGET.sub("]", _CODE_IN_LINE.sub("x", document))
    return _WRAP.sub(" ", document)


def found(text: str) -> Iterator[tuple[str, Word]]:
    """Each word of the list in a text, with a few words around it."""
    text = _FIELDS.sub('""', text)
    # Most files have few of them, or none.
    here = [word for word in WORDS if word.pattern.search(text)]
    for line in text.split("\n") if here else ():
        for word in here:
            for match in word.pattern.finditer(line):
                yield line[max(0, match.start() - 40) : match.end() + 25].strip(), word


@cache
def _recorded() -> str:
    """All recorded answers of Apache Kafka, with the names of their cases."""
    files = sorted((_PARITY / "vectors").glob("*.json"))
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def without_recorded(code: str, recorded: str) -> str:
    """The code without the strings that have a word of the list and are in the recorded answers."""

    def blank(string: re.Match[str]) -> str:
        has_word = next(found(string[1]), None) is not None
        return '""' if has_word and string[1] in recorded else string[0]

    return _STRING.sub(blank, code)


def text_of(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return prose_of(text)
    is_recorded = path.resolve().is_relative_to(_PARITY)
    return without_recorded(text, _recorded()) if is_recorded else text


def documents() -> list[Path]:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*pages, *sorted((ROOT / "docs").rglob("*.md"))]


def room_of(name: str) -> str:
    """Where a file's words are counted: a document by itself, code with its folder."""
    if name.endswith(".md"):
        return name
    return "/".join(name.split("/")[:2][: len(name.split("/")) - 1])


@functools.cache
def counts() -> Counter[str]:
    """How many of the words each room has."""
    total: Counter[str] = Counter()
    for path in [*source_files(*FOLDERS, suffixes=SUFFIXES), *documents()]:
        if relative(path) not in EXCEPT:
            total[room_of(relative(path))] += sum(1 for _ in found(text_of(path)))
    return +total


def found_names(text: str) -> list[str]:
    """The names of tests in a file that have one of the words."""
    return [
        name
        for name in _TEST.findall(text)
        if _CLAUSE.search(name) or next(found(name.replace("_", " ")), None)
    ]


@functools.cache
def name_counts() -> Counter[str]:
    """How many tests of each room have such a name."""
    total: Counter[str] = Counter()
    for path in source_files("tests", suffixes=(".py",)):
        total[room_of(relative(path))] += len(found_names(path.read_text(encoding="utf-8")))
    return +total


def _files(path: Path) -> list[Path]:
    inside = (each for each in path.rglob("*") if each.suffix in (*SUFFIXES, ".md"))
    return sorted(inside) if path.is_dir() else [path]


def main(paths: list[str]) -> None:
    for path in (each for name in paths for each in _files(Path(name))):
        for where, word in found(text_of(path)):
            sys.stdout.write(f"{path}: {where}: instead: {word.instead}\n")
        for name in found_names(path.read_text(encoding="utf-8")):
            sys.stdout.write(f"{path}: {name}: instead: a noun in the place of the clause\n")
    if not paths:
        for title, found_today in (("LEFT", counts()), ("NAMES_LEFT", name_counts())):
            sys.stdout.write(f"{title}\n")
            for room, count in sorted(found_today.items()):
                sys.stdout.write(f'    "{room}": {count},\n')


LEFT: Final[dict[str, int]] = {}
NAMES_LEFT: Final[dict[str, int]] = {}

if __name__ == "__main__":
    main(sys.argv[1:])
