"""A start imports no table of messages: each is imported by the first request that needs it."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

from kbroker.protocol import messages
from tests.support.source_tree import ROOT

# The first line is printed when the broker is ready, the second when its warm-up is over.
CHILD = """
import json, os, signal, sys, threading
from kbroker.cli.main import main
from kbroker.testing.inspection import wait_until

def names():
    print(json.dumps(sorted(sys.modules)), flush=True)

def look():
    wait_until(lambda: os.path.exists("ready.json"), "it is ready")
    names()
    wait_until(lambda: "kbroker-control" in {t.name for t in threading.enumerate()}, "it is warm")
    names()
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=look, daemon=True).start()
words = ["--data-dir", "data", "--port", "0", "--ready-file", "ready.json"]
sys.exit(main(["start", *words, "--override", "admin.listeners=http://127.0.0.1:0"]))
"""
TABLES = {
    f"{messages.__name__}.{module.name}"
    for module in pkgutil.iter_modules(messages.__path__)
    if module.name not in ("table", "failures")  # what tables are made of
}


def test_a_start_imports_no_table_of_messages(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    ready, warm = map(json.loads, done.stdout.splitlines())
    assert "kbroker.server.broker" in ready and len(TABLES) > 50
    assert TABLES & {*ready} == TABLES & {*warm} == set()
    # Nor the HTTP side, nor the console and its library: those come with a first visit.
    http = ("kbroker.admin", "kbroker.console", "jinja2", "starlette")
    assert not [each for each in warm if each.startswith(http)]
