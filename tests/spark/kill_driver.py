"""The streaming job in a process of its own that ends itself, and its JVM, by kill -9 at a step.

    python -m tests.spark.kill_driver BOOTSTRAP TABLES TOPIC [STEP NTH]

Its process group must be its own. When its session is there it waits for a line, so that the next
driver can be warm while this one works. Without a step it goes on until it is killed; with `landed`
as the step it lands what is there and ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from spark_jobs import stream
from spark_jobs.session import session
from tests.support import spark_classes

JVM: str = f"{spark_classes.java_options()} -Xss4m"
CONF = {
    **spark_classes.SHORT_QUERIES,
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JVM,
    "spark.sql.shuffle.partitions": "1",
}
LANDED = "landed"


def main(bootstrap: str, tables: str, topic: str, at: str = "", nth: str = "1") -> None:
    left = int(nth)

    def step(name: str, batch_id: int) -> None:
        nonlocal left
        if name == at:
            left -= 1
            if left == 0:
                os.killpg(0, signal.SIGKILL)

    trigger = "available-now" if at == LANDED else "0.1"
    options = stream.arguments([
        "--bootstrap-server", bootstrap, "--tables", tables, "--topic", topic,
        "--trigger", trigger, "--source", "kafka",
    ])  # fmt: skip
    spark = session("local[1]", "kbroker-kills", source="kafka", conf=CONF)
    print("session", flush=True)
    if not sys.stdin.readline():
        return  # its parent is gone
    stream.land(spark, options, stop=threading.Event(), say=say, step=step)
    spark.stop()


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
