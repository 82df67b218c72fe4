"""Waiting for the end: the first SIGTERM or SIGINT asks for it, a second one takes it.

The main thread reads one byte that Python's own signal trampoline writes, so it costs nothing while
it waits and needs no polling. Once the end was asked for, the signals get their default actions
back: another one ends the process at once, whatever it is doing (143 or 130 in a shell).
"""

from __future__ import annotations

import os
import signal
from typing import Final

_ASKED: Final = (signal.SIGTERM, signal.SIGINT)


class EndSignal:
    """Installed once, by the main thread."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def install(self) -> None:
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in _ASKED:
            signal.signal(number, lambda *_: None)

    def wait(self) -> signal.Signals:
        """Block until the end is asked for; from then on a signal ends the process."""
        os.set_blocking(self._reader, True)
        while True:
            number = os.read(self._reader, 1)[0]
            if number in _ASKED:
                break
        for each in _ASKED:
            signal.signal(each, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        self._end_if_there_were_two()
        return signal.Signals(number)

    def _end_if_there_were_two(self) -> None:
        """The second may have come before anybody waited, while the start was ending."""
        os.set_blocking(self._reader, False)
        try:
            others = os.read(self._reader, 64)
        except BlockingIOError:
            return
        for number in others:
            if number in _ASKED:
                signal.raise_signal(number)
