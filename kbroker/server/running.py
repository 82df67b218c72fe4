"""A broker in a process of its own: from the first line of its log to the exit status."""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker import limits
from kbroker.config.listeners import format_address
from kbroker.observe.live_objects import log_what_stayed
from kbroker.server.broker import Broker, ServeAdmin
from kbroker.server.logs import configure_logging
from kbroker.server.signals import EndSignal

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.server.service_manager import ServiceManager

logger: Final = logging.getLogger("kbroker.server")

NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"  # where systemd listens; sd_notify(3)
LOOKS_IN_TIMEOUT: Final = 3  # of the watchdog: one that comes late does not end the process


def run(
    config: BrokerConfig,
    *,
    data_dir: str,
    ready_file: str | None,
    serve_admin: ServeAdmin | None = None,
    make: type[Broker] = Broker,
) -> int:
    """`kbroker start`: a broker until a signal asks for its end; the exit status."""
    log_file = configure_logging(config["logging.format"], config["logging.file"])
    for warning in config.warnings:
        logger.warning(warning)
    ready_path = None if ready_file is None else Path(ready_file)
    end, manager = EndSignal(), _service_manager()

    def install() -> None:
        """From where the start begins to change files, its end is a clean one."""
        end.install(broker.give_up_start)

    broker = make(config, Path(data_dir), ready_path, serve_admin, before_logs=install)
    # What a start makes stays, but for some dozens of objects, and what was made of logs that could
    # not be opened: with thousands of logs the look for that delays every request.
    gc.disable()
    serves = broker.start()
    if broker.has_offline_logs:
        gc.collect()
    gc.freeze()
    gc.enable()
    sys.setswitchinterval(limits.GIL_SWITCH_INTERVAL_S)
    if serves and manager is not None:
        manager.ready(_status(broker))
        if manager.watchdog_ms is not None:
            broker.keep_watched(manager.alive, manager.watchdog_ms // LOOKS_IN_TIMEOUT)

    def reopen() -> None:
        if log_file is not None and not log_file.reopen():
            logger.warning("%s cannot be opened again", config["logging.file"])

    def reload() -> None:
        reopen()
        if manager is not None:
            manager.reloading()
        broker.reload()
        if manager is not None:
            manager.ready(_status(broker))

    number = end.wait(reload, reopen)
    logger.info("stopping on %s", number.name)
    if manager is not None:
        manager.stopping(f"stops on {number.name}")
    clean = broker.stop()
    log_what_stayed(broker.live_objects())
    logger.info("stopped")
    return 0 if clean else 1


def _service_manager() -> ServiceManager | None:
    """systemd, where it has started this process and waits for its messages."""
    if NOTIFY_SOCKET not in os.environ:
        return None
    from kbroker.server.service_manager import ServiceManager

    return ServiceManager.of(os.environ, os.getpid())


def _status(broker: Broker) -> str:
    return f"node {broker.config.node_id} serves {format_address(*broker.bootstrap)}"
