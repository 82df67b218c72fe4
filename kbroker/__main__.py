"""`python -m kbroker` is the `kbroker` command."""

from __future__ import annotations

import sys

from kbroker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
