"""The broker's audit log, as its settings ask for one.

Place in the flow: `Access` makes it with the authorizer before all other parts of the broker, and
stops it after them. A broker whose audit log cannot be written does not start, and one line gives
the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.errors import ConfigError

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.config import BrokerConfig
    from kbroker.security.audit import AuditLog

FILE: Final = "kbroker.audit.file"


def audit_of(config: BrokerConfig, clock: Clock) -> AuditLog | None:
    """It has started; None: there is none. ConfigError: the file cannot be written."""
    path = config[FILE]
    if not path:
        return None
    from kbroker.security.audit import AuditLog, Bounds

    bounds = Bounds(
        config["kbroker.audit.max.bytes"],
        config["kbroker.audit.max.files"],
        config["kbroker.audit.max.lines.per.second"],
    )
    audit = AuditLog(path, bounds, clock, config.node_id)
    try:
        audit.start()
    except OSError as error:
        raise ConfigError(
            f"{FILE}={path} cannot be written: {error.strerror or error}",
            "make its directory, and let the broker's user write there",
        ) from None
    return audit
