"""A fault that is planted: a real function replaced by a wrong one, or several."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tests.simulation.act import Act


@dataclass(frozen=True)
class Plant:
    """`seeds` are enough to find it, from `first` on: earlier ones do not find it, and take long.
    `also` are further functions that it replaces. `schedule`: a shrunk one, which finds it in the
    history of seed `first` where only thousands of seeds would, in runs by hand."""

    owner: Any
    name: str
    wrong: Callable[..., Any]
    seeds: int
    also: tuple[tuple[Any, str, Callable[..., Any]], ...] = ()
    first: int = 0
    schedule: tuple[Act, ...] | None = None

    def switched_on(self) -> AbstractContextManager[Any]:
        with ExitStack() as patches:
            for place in ((self.owner, self.name, self.wrong), *self.also):
                patches.enter_context(mock.patch.object(*place))
            return patches.pop_all()
