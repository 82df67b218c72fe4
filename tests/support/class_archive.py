"""Archives of classes that Java maps instead of reading and checking them anew in each process.

Class data sharing (JEP 350): `written_to` are the flags of the process that an archive is made of,
`mapped_from` those of the ones after it. An archive holds for one build of Java and one class path,
to which more may be appended; where it does not fit, Java goes on without, and is to say nothing of
it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

_SAY_NOTHING: Final = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_CHECK_TIMEOUT_S: Final = 60


def written_to(archive: Path) -> tuple[str, ...]:
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SAY_NOTHING)


def mapped_from(archive: Path) -> tuple[str, ...]:
    """No flags where there is no archive."""
    return (f"-XX:SharedArchiveFile={archive}", *_SAY_NOTHING) if archive.exists() else ()


def fits(archive: Path, java: str, *flags: str) -> bool:
    """Whether this Java, started with these flags, maps it."""
    if not archive.exists():
        return False
    command = [java, "-Xshare:on", *mapped_from(archive), *flags, "-version"]
    asked = subprocess.run(
        command, timeout=_CHECK_TIMEOUT_S, stdin=subprocess.DEVNULL, capture_output=True
    )
    return asked.returncode == 0
