"""A broker that runs out of descriptors right after its start serves all when there are some."""

from __future__ import annotations

import os
import resource
import urllib.error
import urllib.request

import pytest

from kbroker.testing import Broker
from kbroker.testing.inspection import wait_until

pytestmark = pytest.mark.timeout(60)

SPARE = 2
# Errors of the first try. The HTTP side is imported with the first connection, so not before.
FAILED = "serving the admin port failed"


def readyz(broker: Broker) -> str:
    try:
        with urllib.request.urlopen(f"{broker.admin}/readyz", timeout=1) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""


def test_a_part_that_failed_for_want_of_descriptors_comes_back() -> None:
    with Broker() as broker:
        pid = broker.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        in_use = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (in_use - SPARE, hard))
        wait_until(lambda: not readyz(broker) and FAILED in broker.log_text(), "it has failed")
        assert broker.alive
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        wait_until(lambda: readyz(broker) == "ok\n", "all is there")
        with urllib.request.urlopen(f"{broker.admin}/metrics?name=kbroker_tasks_failing") as it:
            assert "kbroker_tasks_failing 0" in it.read().decode()
