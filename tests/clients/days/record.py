"""Write down Apache Kafka's days: `python -m tests.clients.days.record` starts one and holds them.

`make parity` does this; the plain test run needs no JVM but the Java client's own.
"""

from __future__ import annotations

import json

from tests.clients.days import runs
from tests.support.kafka import KafkaBroker


def main() -> None:
    with KafkaBroker() as broker:
        for client in runs.CLIENTS:
            runs.clear(broker.bootstrap)
            steps = runs.day(client, broker.bootstrap)
            path = runs.recorded(client)
            path.parent.mkdir(exist_ok=True)
            lines = ",\n".join(json.dumps(step) for step in steps)
            path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
            print(f"{client}: {len(steps)} steps", flush=True)


if __name__ == "__main__":
    main()
