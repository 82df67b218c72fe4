"""The rig of the network tests: the hot path is driven through real sockets."""

import pytest

from tests.unit.engine.transactional import Coordinator
from tests.unit.net.conftest import make_rig, rig
from tests.unit.net.harness import Rig

__all__ = ["make_rig", "rig"]


@pytest.fixture
def coordinator(rig: Rig) -> Coordinator:
    """Which the broker asks about transactions that begin."""
    coordinator = Coordinator()
    rig.verify = coordinator.verify
    return coordinator
