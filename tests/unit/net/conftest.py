"""A rig for each test that needs one; its end checks that nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority, Certificate
from tests.unit.net.harness import Rig, running
from tests.unit.net.over_tls import Over, tls_context


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    with ExitStack() as stack:

        def make(**options: Any) -> Rig:
            return stack.enter_context(running(tmp_path, **options))

        yield make


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig()


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def broker(authority: Authority) -> Certificate:
    return authority.issue("broker")


@pytest.fixture(scope="session")
def other(authority: Authority) -> Certificate:
    return authority.issue("other")


@pytest.fixture
def over(make_rig: Callable[..., Rig], authority: Authority, broker: Certificate) -> Over:
    return Over(make_rig, authority, tls_context(broker))
