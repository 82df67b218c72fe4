"""Tools: Apache Kafka's own command-line tools, unchanged, run one after the other in one JVM.

`attempt` runs a tool and gives what it printed and its exit status, as subprocess.run would;
`run` asks it to succeed. One JVM serves a session of tests (programs/java/Tools.java says how a
tool's end is caught); it is replaced when a tool does not answer in time. Of an older Kafka only
the first tool's output comes back: its tools are in Scala, which keeps the stream that it has seen.
"""

from __future__ import annotations

import json
import select
import subprocess

from lab.jars import KAFKA, Jars
from tests.clients.agents import programs
from tests.support import kafka_classes

TIMEOUT_S = 90
OURS = ("Consoles",)  # programs/java has them; they run as the tools do


class Tools:
    def __init__(self, *java_options: str, kafka: Jars = KAFKA) -> None:
        self._java_options = ("--add-opens", "java.base/java.lang=ALL-UNNAMED", *java_options)
        self._kafka = kafka
        self._process: subprocess.Popen[bytes] | None = None

    def attempt(
        self, tool: str, *arguments: str, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """tool is a class: its whole name, or what follows org.apache.kafka.tools."""
        is_whole = tool in OURS or tool.startswith(("kafka.", "org."))
        name = tool if is_whole else f"org.apache.kafka.tools.{tool}"
        wanted = {"tool": name, "arguments": arguments, "stdin": stdin.decode()}
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(wanted).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.close()
            raise TimeoutError(f"{name} did not end in {TIMEOUT_S} s, or ended its JVM")
        answer = json.loads(line)
        return subprocess.CompletedProcess(
            [name, *arguments], answer["status"], answer["stdout"].encode(),
            answer["stderr"].encode(),
        )  # fmt: skip

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                kafka_classes.command(
                    "Tools", kafka=self._kafka, classes=programs.program("java"), log="warn",
                    options=self._java_options,
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )  # fmt: skip
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process = None


class Tool:
    """The tools against one broker."""

    def __init__(self, tools: Tools, bootstrap: str) -> None:
        self.attempt = tools.attempt
        self.bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, stdin: bytes = b"") -> str:
        """A tool that talks to the broker and must succeed; what it printed."""
        ran = self.attempt(tool, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)
        assert ran.returncode == 0, (ran.stdout + ran.stderr).decode(errors="replace")
        return ran.stdout.decode()
