"""A loopback of the comparison's own: no other traffic, and no pacing.

Where the kernel's default congestion control paces (bbr), a large answer on loopback waits for
timers and not for the broker, and the figures of a 1 MB fetch say nothing. Congestion control is
the sender's choice and so not the generator's; but it belongs to a network namespace. `enter`
moves the calling thread, and with it every process and thread that it starts later, into a new one
whose loopback is up and whose default is loss-based. That needs privileges; without them the run
goes on where it is, and what was found is said.
"""

from __future__ import annotations

from pathlib import Path

from lab import namespaces

CONGESTION_CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
LOSS_BASED = ("cubic", "reno")


def congestion_control() -> str:
    try:
        return CONGESTION_CONTROL.read_text().strip()
    except OSError:
        return "unknown"


def paces(name: str) -> bool:
    return name.startswith("bbr")


def enter() -> str:
    """Move this thread into a network of its own; says where it is now."""
    try:
        enter_new()
    except OSError as error:
        return f"shared ({error.strerror}), {congestion_control()}"
    return f"own namespace, {congestion_control()}"


def enter_new() -> None:
    """The same. OSError without the privilege."""
    namespaces.enter_new()
    if congestion_control() not in LOSS_BASED:
        for name in LOSS_BASED:
            try:
                CONGESTION_CONTROL.write_text(name)
                break
            except OSError:
                continue  # not built in; try the next one
