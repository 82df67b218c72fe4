"""The process's open-file limit: raised to the hard one at start.

Every connection and every segment is a descriptor, and the usual soft limit of 1,024 is for
programs that still use select(2). A limit that cannot be raised is left as it is.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

logger: Final = logging.getLogger("kbroker.server")


def raise_open_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("the open-file limit stays at %d: %s", soft, error)
