"""A server with few file descriptors, in a process of its own: run by test_open_files.py.

Answers each line on standard input with its figures as a line of JSON; ends with the input.
"""

import json
import os
import resource
import sys
from pathlib import Path

from tests.unit.net.harness import Rig


def main() -> None:
    rig = Rig(Path(sys.argv[1]))
    spare = int(sys.argv[2])
    open_now = len(os.listdir("/proc/self/fd")) - 1
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + spare, hard))
    sys.stdout.write(f"{rig.port}\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        figures = rig.server.statistics()
        sys.stdout.write(
            json.dumps(
                {
                    "connections": figures["processors"][0]["connections"],
                    "paused": figures["acceptors"][0]["paused"],
                    "accepted": figures["acceptors"][0]["accepted"],
                }
            )
            + "\n"
        )
        sys.stdout.flush()
    rig.stop()


main()
