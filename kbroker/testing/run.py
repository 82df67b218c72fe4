"""`python -m kbroker.testing.run CONTROL ...`: `kbroker start ...` with a control connection.

CONTROL is the path of the Unix socket; what follows are the arguments of `kbroker start`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from kbroker.cli.main import report
from kbroker.cli.start import prepare, serve_admin
from kbroker.cli.start_arguments import parse_plain
from kbroker.config import BrokerConfig
from kbroker.errors import KafkaError, UserError
from kbroker.server.broker import ServeAdmin
from kbroker.server.lifecycle import nothing
from kbroker.server.running import run
from kbroker.testing.control import serve
from kbroker.testing.inspected import InspectedBroker


def main(words: Sequence[str]) -> int:
    control_path, *rest = words
    arguments = parse_plain(rest)
    if arguments is None:
        return report(f"these are no arguments of kbroker start: {rest}", 2)

    class Controlled(InspectedBroker):
        def __init__(
            self,
            config: BrokerConfig,
            data_dir: Path,
            ready_file: Path | None = None,
            serve_admin: ServeAdmin | None = None,
            before_logs: Callable[[], None] = nothing,
        ) -> None:
            super().__init__(config, data_dir, ready_file, serve_admin, before_logs)
            serve(Path(control_path), self.control)

    try:
        config = prepare(arguments)
        ready_file = arguments.ready_file
        return run(
            config,
            data_dir=config.log_dirs[0],
            ready_file=None if ready_file is None else os.path.abspath(ready_file),
            serve_admin=serve_admin,
            make=Controlled,
        )
    except UserError as error:
        return report(str(error), error.exit_code)
    except KafkaError as error:
        return report(str(error), 1)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
