"""Ours beside the vectors: `python -m tests.parity.compare [FAMILY...] [-k WORD] [-v] [--pin]`.

Prints every place where kbroker's answer differs and no entry of differences.py explains it; `-v`
also those that are explained. Differences that several versions of a case have are printed once.
`-k` keeps the cases whose label has the word. `--pin` writes our answers down (differences.json)
where an entry has the place, those of the cases that were held.
"""

from __future__ import annotations

import argparse
import re
import sys
import time

from tests.parity import vectors
from tests.parity.cases import cases_of, families
from tests.parity.differences import Found, between, load_pins, reason, save_pins, split
from tests.parity.sides import Side


def compare(names: list[str], word: str = "", verbose: bool = False, pin: bool = False) -> int:
    """Returns how many cases differ without an explanation, failed or are not recorded."""
    started = time.monotonic()
    chosen = [(f, case) for f in names for case in cases_of(f) if word in case.label]
    with Side.kbroker() as side:
        held = side.hold(chosen)
    theirs = {family: vectors.load(family) for family in names}
    pins = load_pins()
    wrong, explained_in_all = 0, 0
    alike: dict[str, list[Found]] = {}
    for (family, label), ours in held.items():
        name = f"{family}: {label}"
        if ours.failure is not None:
            print(f"{name}\n  failed: {ours.failure}\n  after {ours.steps[-1:]}")
        elif label not in theirs[family]:
            print(f"{name}\n  is not recorded")
        else:
            found = list(between(name, ours.steps, theirs[family][label]))
            if pin:
                pins[name] = {each.path: each.ours for each in found if reason(each) is not None}
            unexplained, explained = split(found, pins)
            explained_in_all += bool(explained) and not unexplained
            for each in unexplained:
                alike.setdefault(_kind(each), []).append(each)
            for each, entry in explained if verbose else ():
                print(f"{each}\n    explained: {entry.why}")
            wrong += bool(unexplained)
            continue
        wrong += 1
    if pin:
        save_pins(pins)
    for first, *others in alike.values():
        print(first)
        if others:
            print(f"    and {len(others)} more like this, the last in {others[-1].case}")
    print(
        f"{len(held)} cases, {wrong} different without an explanation, {explained_in_all} with one;"
        f" {time.monotonic() - started:.1f} s"
    )
    return wrong


def _kind(found: Found) -> str:
    """The text that differences of several versions or topics have in common."""
    text = f"{found.case.rpartition(' v')[0]} {found.path} {found.ours} {found.theirs}"
    return re.sub(r"-[0-9a-f]{8}\b", "", text)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare kbroker with the recorded answers.")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(families()))
    parser.add_argument("-k", dest="word", default="", help="only labels with this word")
    parser.add_argument("-v", dest="verbose", action="store_true", help="explained ones, too")
    parser.add_argument("--pin", action="store_true", help="write down the explained answers")
    given = parser.parse_args()
    names = given.families or list(families())
    return 1 if compare(names, given.word, given.verbose, given.pin) else 0


if __name__ == "__main__":
    sys.exit(main())
