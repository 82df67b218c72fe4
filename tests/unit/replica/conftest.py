"""The rig of the network tests: sessions and snapshots are used through the hot path."""

from tests.unit.net.conftest import make_rig, rig

__all__ = ["make_rig", "rig"]
