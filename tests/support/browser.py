"""Headless Chromium for tests of pages, driven over a pipe by its DevTools protocol.

`with Browser.start(directory) as browser: page = browser.open(path)`. No port is opened and no
library is needed: commands and events are JSON objects that end with a NUL, on the browser's file
descriptors 3 and 4. Every request that a page makes, every line on its console and every exception
is kept, so that a test can say that there were none. The profile is new and in the test's own
directory; nothing of the user's is read. No answer within TIMEOUT_S fails the test.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import requirements

PACKAGE = "chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 60.0
READ_BYTES = 1 << 20
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One browser process with one page, and everything that page asked for or complained about."""

    def __init__(self, process: subprocess.Popen[bytes], to_fd: int, from_fd: int) -> None:
        self.requests: list[str] = []
        self.console: list[str] = []
        self._process = process
        self._to, self._from = to_fd, from_fd
        self._buffer = b""
        self._events: list[str] = []
        self._last = 0
        self._session: str | None = None

    @classmethod
    @contextmanager
    def start(cls, directory: Path) -> Iterator[Browser]:
        """A browser whose profile is under `directory`; skips the test where there is none."""
        program = find()
        if program is None:
            requirements.skip_missing("Chromium", f"apt-get install {PACKAGE}, or `make setup`")
        their_in, our_out = os.pipe()
        our_in, their_out = os.pipe()
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={directory / 'profile'}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: _as_3_and_4(their_in, their_out),
            close_fds=False,
            start_new_session=True,
        )
        os.close(their_in)
        os.close(their_out)
        browser = cls(process, our_out, our_in)
        try:
            browser._attach()
            yield browser
        finally:
            os.close(our_out)
            os.close(our_in)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def open(self, path: Path, *, scheme: str, width: int = 1280, height: int = 900) -> None:
        """Load a file as a reader whose system is "light" or "dark"; requests start from none."""
        self.go(path.as_uri(), scheme=scheme, width=width, height=height)

    def go(self, url: str, *, scheme: str, width: int = 1280, height: int = 900) -> None:
        """As `open`, any address."""
        self.requests.clear()
        self.console.clear()
        self.media(scheme=scheme)
        self.size(width, height)
        self._events.clear()
        answer = self.call("Page.navigate", url=url)
        if answer.get("errorText"):
            raise RuntimeError(f"{url}: {answer['errorText']}")
        self._until("Page.loadEventFired")

    def media(self, *, scheme: str, media: str = "") -> None:
        """As a reader who prefers `scheme`, on "" (the screen) or "print"."""
        self.call(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip

    def value(self, script: str) -> Any:
        """What a JavaScript expression gives in the page, as JSON would hold it."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, to: Path, *, whole: bool = False) -> Path:
        """A PNG of the visible part, or of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        to.write_bytes(base64.b64decode(shot["data"]))
        return to

    def pdf(self, to: Path) -> Path:
        """The page as it is printed."""
        to.write_bytes(base64.b64decode(self.call("Page.printToPDF")["data"]))
        return to

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events meanwhile are kept."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            got = self._next(deadline, method)
            if got.get("id") == self._last:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']}")
                return dict(got["result"])

    def _attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def _until(self, event: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while event not in self._events:
            self._next(deadline, event)

    def _next(self, deadline: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from], [], [], left)[0]:
                raise TimeoutError(f"Chromium: nothing of {waiting_for} within {TIMEOUT_S:.0f} s")
            got = os.read(self._from, READ_BYTES)
            if not got:
                raise RuntimeError(f"Chromium ended while {waiting_for} was waited for")
            self._buffer += got
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._keep(message["method"], message["params"])
        return message

    def _keep(self, method: str, params: dict[str, Any]) -> None:
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Log.entryAdded":
            self.console.append(params["entry"]["text"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.console.append(json.dumps(params))


def _as_3_and_4(reads: int, writes: int) -> None:
    """In the child: the pipe's ends where Chromium looks for them."""
    high_reads, high_writes = os.dup(reads), os.dup(writes)
    while high_reads < 5:
        high_reads = os.dup(high_reads)
    while high_writes < 5:
        high_writes = os.dup(high_writes)
    os.dup2(high_reads, 3)
    os.dup2(high_writes, 4)
    os.closerange(5, 256)
