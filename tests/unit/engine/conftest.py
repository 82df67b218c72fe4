"""The rig of the network tests: the hot path is driven through real sockets."""

from tests.unit.net.conftest import make_rig, rig

__all__ = ["make_rig", "rig"]
