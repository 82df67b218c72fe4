"""kbroker with an authorizer, though not every API asks it yet, for tests of those that do.

    python -m tests.support.authorized_broker start ...      as `kbroker start ...`

`kbroker start` refuses the setting, and no setting of a broker takes that back.
"""

from __future__ import annotations

import sys

from kbroker.testing.plain import PlainBroker


class AuthorizedBroker(PlainBroker):
    def program(self) -> list[str]:
        return ["-m", "tests.support.authorized_broker", "start"]


def main() -> None:
    from kbroker.cli.main import main as kbroker
    from kbroker.server import authorizer

    vars(authorizer)["EVERY_API_ASKS"] = True
    sys.exit(kbroker())


if __name__ == "__main__":
    main()
