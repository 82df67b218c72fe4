"""Which boot of the machine this is."""

from __future__ import annotations

from pathlib import Path

from kbroker.log.opening.data_directory import UNKNOWN_BOOT
from kbroker.server.boot import boot_id


def test_the_kernel_says_it(tmp_path: Path) -> None:
    assert boot_id() == boot_id() != UNKNOWN_BOOT
    file = tmp_path / "boot_id"
    assert boot_id(file) == UNKNOWN_BOOT
    file.write_bytes(b"\xff")
    assert boot_id(file) == UNKNOWN_BOOT
    file.write_text("4b1f\n")
    assert boot_id(file) == "4b1f"
