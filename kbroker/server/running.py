"""A broker in a process of its own: from the first line of its log to the exit status."""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kbroker import limits
from kbroker.observe.live_objects import log_what_stayed
from kbroker.server.broker import Broker, ServeAdmin
from kbroker.server.logs import configure_logging
from kbroker.server.signals import EndSignal

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig

logger: Final = logging.getLogger("kbroker.server")


def run(
    config: BrokerConfig,
    *,
    data_dir: str,
    ready_file: str | None,
    serve_admin: ServeAdmin | None = None,
    make: type[Broker] = Broker,
) -> int:
    """`kbroker start`: a broker until a signal asks for its end; the exit status."""
    configure_logging(config["logging.format"])
    for warning in config.warnings:
        logger.warning(warning)
    ready_path = None if ready_file is None else Path(ready_file)
    end = EndSignal()

    def install() -> None:
        """From where the start begins to change files, its end is a clean one."""
        end.install(broker.give_up_start)

    broker = make(config, Path(data_dir), ready_path, serve_admin, before_logs=install)
    # What a start makes stays, but for some dozens of objects, and what was made of logs that could
    # not be opened: with thousands of logs the look for that delays every request.
    gc.disable()
    broker.start()
    if broker.has_offline_logs:
        gc.collect()
    gc.freeze()
    gc.enable()
    sys.setswitchinterval(limits.GIL_SWITCH_INTERVAL_S)
    number = end.wait(broker.reload)
    logger.info("stopping on %s", number.name)
    clean = broker.stop()
    log_what_stayed(broker.live_objects())
    logger.info("stopped")
    return 0 if clean else 1
