"""Signals: the first SIGTERM or SIGINT asks for the end, a second one takes it; SIGHUP reads again.

    SIGTERM, SIGINT    a clean stop, or a start that goes no further and leaves all in order; once
                       more: the end at once (143 or 130 in a shell)
    SIGHUP             what is in the metadata store is read again and followed. But where the
                       terminal that the broker was started in is gone, no user is left to end it:
                       a clean stop, which a second SIGHUP does not cut short, since a shell that
                       goes sends one beside the kernel's. Under nohup nothing
    SIGUSR1            the file of the log is opened again, which SIGHUP does, too
    SIGUSR2            a line in the log

The main thread reads one byte that Python's own signal trampoline writes, so it costs nothing while
it waits and needs no polling. Once the end was asked for, SIGTERM and SIGINT get their default
actions back: another one ends the process at once, whatever it is doing. For process 1 of a
container the kernel drops signals with their default action, so there a handler ends the process.
Orphans of other programs in the container become its children; the kernel removes them.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from typing import Final

logger: Final = logging.getLogger("kbroker.server")

_END: Final = (signal.SIGTERM, signal.SIGINT)
_GO_ON: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FIRST_PROCESS: Final = 1
_KILLED_BY: Final = 128  # a signal of this number more, as shells have it


class EndSignal:
    """Installed once, by the main thread."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._had_terminal = _has_terminal()
        self._asked = False

    def install(self, asked: Callable[[], None]) -> None:
        """`asked` is called with the first signal that asks for the end: by the main thread between
        two of its instructions, whatever lock it holds."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in _GO_ON:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        for number in _END:
            signal.signal(number, lambda each, _: self._end_asked(each, asked))
        if os.getpid() == _FIRST_PROCESS:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def _end_asked(self, number: int, asked: Callable[[], None]) -> None:
        if self._asked:
            end_at_once_on(number)
            signal.raise_signal(number)
        self._asked = True
        asked()

    def wait(self, reload: Callable[[], None], reopen: Callable[[], None]) -> signal.Signals:
        """Block until the end is asked for; from then on a signal ends the process."""
        os.set_blocking(self._reader, True)
        while True:
            number = signal.Signals(os.read(self._reader, 1)[0])
            if number in _END or (number is signal.SIGHUP and self._terminal_is_gone()):
                break
            if number is signal.SIGHUP:
                logger.info("SIGHUP: topics and settings are read again")
                reload()
            elif number is signal.SIGUSR1:
                logger.info("SIGUSR1: the file of the log is opened again, if there is one")
                reopen()
            elif number in _GO_ON:
                logger.info("%s has no meaning here", number.name)
        for each in _GO_ON:
            signal.signal(each, signal.SIG_IGN)
        for each in _END:
            end_at_once_on(each)
        signal.set_wakeup_fd(-1)
        self._end_if_there_were_two()
        return number

    def _terminal_is_gone(self) -> bool:
        return self._had_terminal and not _has_terminal()

    def _end_if_there_were_two(self) -> None:
        """The second may have come before the main thread waited, while the start was ending."""
        os.set_blocking(self._reader, False)
        try:
            others = os.read(self._reader, 64)
        except BlockingIOError:
            return
        for number in others:
            if number in _END:
                signal.raise_signal(number)


def end_at_once_on(number: int) -> None:
    """From now on the signal ends the process, also process 1."""
    if os.getpid() == _FIRST_PROCESS:
        signal.signal(number, lambda each, _: os._exit(_KILLED_BY + each))
    else:
        signal.signal(number, signal.SIG_DFL)


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal, and that is there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
