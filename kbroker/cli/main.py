"""The entry point `kbroker`: finds the verb, runs it, turns trouble into one line and a status.

Place in the flow: `main` is what the installed script and `python -m kbroker` call, on the main
thread. `kbroker start` with plain options goes to the broker without importing click, since every
millisecond here comes before the first acknowledged produce; everything else goes through click,
and each verb's module is imported when that verb is used, not before.

Exit statuses: 0 done, 1 trouble at run time, 2 wrong usage, 3 to 6 the causes that
`kbroker.errors` numbers, 130 interrupted. Trouble that a person can mend is one line on standard
error that begins with "error:"; a traceback is a defect of kbroker.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError, UsageError, UserError

if TYPE_CHECKING:
    import click

INTERRUPTED_STATUS = 130
_FIRST_PROCESS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `kbroker` with `arguments` (default: the process's own) and returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if os.getpid() == _FIRST_PROCESS:
        _end_on_sigterm()
    _prepare_output()
    try:
        if words[:1] != ["start"]:
            _check_text(words)
        status = _run(words)
        sys.stdout.flush()  # here, where an error of it becomes a line
        return status
    except UserError as error:
        return report(str(error), error.exit_code)
    except KafkaError as error:
        return report(str(error), 1)
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except BrokenPipeError:
        # The reader of our output is gone (`kbroker ... | head`): end without a word, and keep the
        # interpreter from flushing to the closed pipe once more.
        _drop_output()
        return 1
    except OSError as error:
        if words[:1] == ["start"] or not error.strerror:
            raise
        if error.filename is None:  # of a full disk, in most cases
            _drop_output()
        named = "" if error.filename is None else f"{error.filename}: "
        return report(f"{named}{error.strerror}", 1)


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_output() -> None:
    """Characters that its encoding does not have are escaped, as on standard error. For a stream
    that is closed Python has None, and the next file would get its number."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _check_text(words: Sequence[str]) -> None:
    """UsageError: a word is not in UTF-8, and names no file. On the wire it would be another
    name."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            if not os.path.lexists(word):
                raise UsageError(f"{word} is not in UTF-8", "check the shell's encoding") from None


def _end_on_sigterm() -> None:
    """For process 1 of a container the kernel drops SIGTERM where there is no handler, and whatever
    runs the container would wait, then kill. A broker that starts replaces this handler."""
    import signal

    from kbroker.server.signals import end_at_once_on

    end_at_once_on(signal.SIGTERM)


def report(message: str, status: int) -> int:
    """Writes the one line of an expected failure and returns its status."""
    from kbroker.outside_text import escaped  # a broker's message may quote what a client sent

    print(f"error: {escaped(' '.join(message.split()))}", file=sys.stderr)
    return status


def _run(words: list[str]) -> int:
    if words[:1] == ["start"]:
        from kbroker.cli.start_arguments import parse_plain

        plain = parse_plain(words[1:])
        if plain is not None:
            from kbroker.cli.start import run_start

            return run_start(plain)
    return _run_click(words)


def _run_click(words: list[str]) -> int:
    import click

    from kbroker.cli.commands import root

    try:
        status = root().main(args=words, prog_name="kbroker", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        return report(_usage_line(error), error.exit_code)
    except click.ClickException as error:
        return report(error.format_message(), error.exit_code)
    except click.exceptions.Abort:
        return INTERRUPTED_STATUS
    return status if isinstance(status, int) else 0


def _usage_line(error: click.UsageError) -> str:
    message = error.format_message()
    if error.ctx is None:
        return message
    return f"{message} -> see {error.ctx.command_path} --help"
