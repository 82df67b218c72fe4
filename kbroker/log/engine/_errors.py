"""What the log's files raise, from C and from Python, where an errno does not say enough."""

from __future__ import annotations


class SyncError(OSError):
    """A sync failed: what was written before it may be lost, and is not reported again."""
