"""A test that needs a debug build is not collected in another one; `make test-debug` runs it."""

from __future__ import annotations

from kbroker.core._lock_order import DEBUG_BUILD

collect_ignore = [] if DEBUG_BUILD else ["test_threads.py"]
