"""The Python libraries as agents: `python -m tests.clients.agents.python NAME HOST:PORT`.

Producing, reading and administering go through the adapters that the other tests use; members of
groups are in members.py, producers that go on in writers.py, transactional ones in transactions.py.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Any

from tests.clients import adapters
from tests.clients.adapters import Record
from tests.clients.agents.driver import decoded, encoded
from tests.clients.agents.members import JOIN, Member
from tests.clients.agents.transactions import TRANSACT, Transactional
from tests.clients.agents.writers import WRITE, Writer
from tests.clients.days.admins import ADMINS

MESSAGE_BYTES_MAX = 8 << 20


class Program:
    def __init__(self, name: str, bootstrap: str) -> None:
        makers = {client.name: client for client in adapters.CLIENTS}
        self._name, self._bootstrap = name, bootstrap
        self._client = makers[name](bootstrap)
        self._members: dict[str, Member] = {}
        self._writers: dict[str, Writer] = {}
        self._transactional: dict[str, Transactional] = {}

    def do(self, op: str, wanted: dict[str, Any]) -> object:
        return getattr(self, f"do_{op}")(**wanted)

    def do_version(self) -> str:
        return importlib.metadata.version(self._name)

    def do_create(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        admin = ADMINS[self._name](self._bootstrap)
        try:
            error = admin.create(topic, partitions, configs)
        finally:
            admin.close()
        if error:
            raise RuntimeError(f"error code {error}")

    def do_produce(self, topic: str, codec: str, records: list[dict[str, Any]]) -> list[int]:
        with self._client.producer(
            codec=codec,
            idempotent=True,
            message_bytes_max=MESSAGE_BYTES_MAX,
            linger_ms=20,
        ) as producer:
            for line in records:
                headers = tuple((pair["key"], decoded(pair["value"])) for pair in line["headers"])
                record = Record(
                    decoded(line["value"]), decoded(line["key"]), headers, line["timestamp"]
                )
                producer.send(topic, record, line["partition"])
            deliveries = producer.flush()
        failed = {delivery.error for delivery in deliveries} - {0}
        if failed:
            raise RuntimeError(f"error codes {sorted(failed)}")
        return [delivery.offset for delivery in deliveries]

    def do_read(
        self, topic: str, partition: int, offset: int, count: int, committed: bool = False
    ) -> list[dict[str, Any]]:
        return [
            {
                "partition": partition,
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": encoded(record.key),
                "value": encoded(record.value),
                "headers": [{"key": k, "value": encoded(v)} for k, v in record.headers],
            }
            for record in self._client.consume(topic, count, partition, offset, committed=committed)
        ]

    def do_offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        with self._client.consumer() as consumer:
            return consumer.offset_for_time(topic, partition, timestamp)

    def do_write(self, name: str, **wanted: Any) -> None:
        if self._name not in WRITE:
            raise RuntimeError("unsupported")
        self._writers[name] = WRITE[self._name](self._bootstrap, name=name, **wanted)

    def do_written(self, name: str) -> object:
        return self._writers[name].written()

    def do_finish(self, name: str) -> object:
        return self._writers.pop(name).finish()

    def do_transactional(self, name: str, id: str, timeout_ms: int) -> None:
        made = TRANSACT[self._name](self._bootstrap, id=id, timeout_ms=timeout_ms)
        self._transactional[name] = made

    def do_begin(self, name: str) -> None:
        self._transactional[name].begin()

    def do_put(self, name: str, topic: str, partition: int, value: str) -> None:
        self._transactional[name].put(topic, partition, decoded(value) or b"")

    def do_offsets(self, name: str, **wanted: Any) -> None:
        self._transactional[name].offsets(**wanted)

    def do_end(self, name: str, commit: bool) -> None:
        self._transactional[name].end(commit=commit)

    def do_close(self, name: str) -> None:
        self._transactional.pop(name).close()

    def do_join(self, name: str, **wanted: Any) -> None:
        self._members[name] = JOIN[self._name](self._bootstrap, **wanted)

    def do_assigned(self, name: str) -> object:
        return self._members[name].holdings.show()

    def do_take(self, name: str) -> object:
        return self._members[name].holdings.take()

    def do_commit(self, name: str) -> None:
        self._members[name].commit()

    def do_seek(self, name: str, topic: str, partition: int, offset: int) -> None:
        self._members[name].seek((topic, partition), offset)

    def do_leave(self, name: str) -> None:
        self._members.pop(name).leave()


def main() -> None:
    program = Program(*sys.argv[1:])
    for line in sys.stdin:
        wanted = json.loads(line)
        try:
            answer = {"ok": program.do(wanted.pop("op"), wanted)}
        except Exception as error:  # whatever a library raises is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
