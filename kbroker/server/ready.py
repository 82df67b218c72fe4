"""How the world learns that the broker accepts requests: the ready line and the ready file.

The line goes to the log and can be searched for; the file appears by an atomic rename, so a program
that sees it can read it whole. It is removed when the broker stops in order.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker.config.listeners import format_address
from kbroker.errors import UserError

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

logger: Final = logging.getLogger("kbroker.server")

_STARTED_TICKS_FIELD: Final = 22  # of /proc/PID/stat, see proc(5)


def announce(
    path: Path | None, config: BrokerConfig, bootstrap: tuple[str, int], admin: str
) -> None:
    """The line, and the file where a path is given; `admin` is "" without an admin port."""
    node_id = config.node_id

    def say() -> None:
        logger.info(ready_line(node_id, seconds_since_exec(), *bootstrap))
        if admin:
            console = f", console: {admin}/ui" if _has_console(config, admin) else ""
            logger.info("metrics and health: %s%s", admin, console)

    if path is None:
        say()
        return
    host, port = bootstrap
    write_ready_file(path, node_id=node_id, bootstrap=f"{host}:{port}", admin=admin, say=say)


def _has_console(config: BrokerConfig, admin: str) -> bool:
    """Whether a visitor of this machine finds one at this address."""
    enabled = config["admin.console.enable"].lower()
    loopback = admin.partition("://")[2].startswith(("127.", "[::1]", "localhost"))
    return enabled == "true" or (enabled == "auto" and loopback)


def seconds_since_exec() -> float:
    """The age of this process, to a hundredth of a second; it includes the interpreter's start."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    # What follows the name begins with field 3.
    started_s = int(fields[_STARTED_TICKS_FIELD - 3]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s


def ready_line(node_id: int, seconds: float, host: str, port: int) -> str:
    return (
        f"[KafkaServer id={node_id}] started (kbroker) in {seconds:.2f} s"
        f" on {format_address(host, port)}"
    )


def write_ready_file(
    path: Path, *, node_id: int, bootstrap: str, admin: str, say: Callable[[], None]
) -> None:
    """Raises UserError when the place cannot be written.

    `say` is called once it is written and before it appears: who sees the file may end this process
    or search its log at once. That is why `replace_file`, which does both, is not used.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    content = {"pid": os.getpid(), "node_id": node_id, "bootstrap": bootstrap, "admin": admin}
    try:
        temporary.write_text(json.dumps(content) + "\n")
        say()
        temporary.rename(path)
    except OSError as error:
        raise UserError(
            f"cannot write the ready file {path}: {error.strerror}",
            "name a file in a directory that exists and can be written",
        ) from error


def remove_ready_file(path: Path) -> None:
    """Gone already is as good."""
    try:
        path.unlink()
    except OSError:
        pass  # there is nothing left that could report it
