"""Which boot of the machine this is: what a crash of the process alone leaves as it was.

A process that is killed loses nothing that it wrote: its pages are the kernel's. They are gone with
the machine, and then the kernel has another id. In a container it is the machine's as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kbroker.log.opening.data_directory import UNKNOWN_BOOT

BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id(file: Path = BOOT_ID_FILE) -> str:
    """UNKNOWN_BOOT where the kernel does not say: every crash counts as the machine's then."""
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return UNKNOWN_BOOT
