"""One file a family of cases; each has `cases()`, found here by the file's name
(but for those that begin with `_`, which are shared)."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from functools import cache
from typing import Final

from tests.parity.book import Case

# Recorded, and compared by name; their tests begin when their APIs are served.
PENDING: Final[frozenset[str]] = frozenset()


@cache
def families() -> tuple[str, ...]:
    """The names of all families, in order."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return tuple(sorted(name for name in names if not name.startswith("_")))


@cache
def cases_of(family: str) -> tuple[Case, ...]:
    """The cases of a family, in the order of its file; their labels are unique."""
    module = importlib.import_module(f"{__name__}.{family}")
    found = tuple(module.cases())
    twice = [label for label, times in Counter(case.label for case in found).items() if times > 1]
    if twice:
        raise ValueError(f"{family}: more than one case is called {twice}")
    return found
