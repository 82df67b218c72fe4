"""What is stored can be read: every writer before every reader, with batches that are wrong.

    python -m tests.fuzz.stored --rounds 1000 --seed 1          250 batches a round

The writers: a produce as it was sent, one recompressed for its topic, a follower, a cleaner. The
readers: those of the log (verify, ListOffsets by time, the cleaner), the loader of groups, and the
clients' (`decode_batches`: consume, explain, dump-log). A batch that the validator takes is read by
each of them as each writer has stored it, with the same records. One that it refuses may be in a
log nevertheless, from before or from a leader of another make: then all readers say so, or none.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from kbroker.compression import PACKINGS, Codec, CompressionError
from kbroker.coordinator.group._groups import GroupTable
from kbroker.errors import ErrorCode, KafkaError
from kbroker.log.engine._results import Uncleanable
from kbroker.log.engine.validator import unpacked_pieces
from kbroker.log.looking._tools import walk_records
from kbroker.log.looking.dump import DamagedLog
from kbroker.log.looking.verify import verify
from kbroker.log.upkeep._cleaning import Cleaning
from kbroker.protocol.record_batch import (
    BATCH_HEADER,
    CODEC_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Record,
    decode_batches,
    packed_records,
    repacked,
)
from kbroker.protocol.wire import ProtocolError
from kbroker.replica.batch_repair import first_batch
from tests.fuzz.batches import Pool, hostile, make_pool
from tests.fuzz.kafka_codecs import batch_of
from tests.fuzz.packed import frame
from tests.support.led_log import LedLog, open_led_log
from tests.support.record_batches import seal

BATCHES: Final = 250
_REFUSED_LOOKED_AT: Final = 25  # of a round: each takes a log of its own
_TOPIC: Final = uuid.UUID(int=7)
_EPOCH: Final = 0
_LATEST_MS: Final = 2**62
_LARGEST_BYTES: Final = 1 << 16  # bombs are tests/fuzz/batches.py's

Said = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def _said(record: Record) -> Said:
    return record.timestamp_ms, record.key, record.value, record.headers


class Round:
    """One seed's batches; `complaints` is what should not be."""

    def __init__(self, place: Path, seed: int, pool: Pool) -> None:
        self._place = place
        self._dice = random.Random(seed)
        self._pool = pool
        self._logs = 0
        self.taken = 0
        self.refused = 0
        self.complaints: list[str] = []

    def run(self) -> None:
        sent = [self._batch() for _ in range(BATCHES)]
        log = self._open()
        taken, refused = [], []
        for batch in sent:
            end = log.log_end_offset
            try:
                error = log.append_group([batch])[0].error
            except NotImplementedError:
                continue  # for Python: a codec without a library
            if error:
                refused.append(batch)
            elif log.log_end_offset > end:  # or a producer has sent it before
                taken.append(batch)
        self.taken, self.refused = len(taken), len(refused)
        expected = [each for batch in taken for each in self._records_of(batch)]
        self._read_back("as sent", log, expected)
        self._follow(log, expected)
        self._pack_anew(taken, expected)
        log.close(clean=False)
        for batch in self._dice.sample(refused, min(_REFUSED_LOOKED_AT, len(refused))):
            self._look_at_refused(batch)

    def _batch(self) -> bytes:
        while True:
            if self._dice.random() < 0.5:
                return batch_of(frame(self._dice))
            batch = hostile(self._pool, lambda: self._dice.getrandbits(32))
            if len(batch) <= _LARGEST_BYTES and batch not in self._pool.bombs:
                return batch

    def _records_of(self, batch: bytes) -> list[Said]:
        # Whose clock the timestamps are of is not the client's to say.
        own_time = seal(batch[:22] + bytes([batch[22] & ~LOG_APPEND_TIME]) + batch[23:])
        try:
            (decoded,) = decode_batches(own_time)
        except (ProtocolError, ValueError) as error:
            self._complain("a client does not read what is taken", error, batch)
            return []
        return [_said(record) for record in decoded.records]

    def _complain(self, what: str, error: object, data: bytes = b"") -> None:
        self.complaints.append(f"{what}: {error}" + (f": {data.hex()}" if data else ""))

    def _open(self, *, follows: bool = False) -> LedLog:
        self._logs += 1
        settings = {"segment_bytes": 1 << 14, "index_interval_bytes": 256}
        path = self._place / f"t-{self._logs}"
        log = open_led_log(path, "t", self._logs, _TOPIC, settings)
        log.set_leadership(2 if follows else 1, not follows, _EPOCH, 2 if follows else 1)
        return log

    # --- The writers ------------------------------------------------------------------------------

    def _follow(self, leader: LedLog, expected: list[Said]) -> None:
        log = self._open(follows=True)
        while log.log_end_offset < leader.log_end_offset:
            log.append_as_follower(leader.read(log.log_end_offset), _EPOCH)
        log.set_leadership(2, True, _EPOCH + 1, 2)
        self._read_back("copied", log, expected)
        log.close(clean=False)

    def _pack_anew(self, taken: list[bytes], expected: list[Said]) -> None:
        log = self._open()
        for batch in taken:
            codec, packed = packed_records(batch)
            packing = PACKINGS[self._dice.choice(list(Codec))]
            try:
                anew = repacked(batch, packing, unpacked_pieces(codec, packed), 1 << 30)
            except CompressionError as error:
                self._complain("what is taken is not packed anew", error, batch)
                return
            error = log.append_group([bytes(anew)])[0].error
            if error:
                self._complain(f"packed anew as {packing.codec.name}", ErrorCode(error), batch)
                return
        self._read_back("packed anew", log, expected)
        log.close(clean=False)

    # --- The readers ------------------------------------------------------------------------------

    def _read_back(self, how: str, log: LedLog, expected: list[Said]) -> None:
        try:
            self._as_client(how, log, expected)
            self._by_time(how, log, expected)
            self._as_loader(how, log)
            self._as_cleaner(how, log, expected)
        except (KafkaError, ProtocolError, DamagedLog, Uncleanable) as error:
            self._complain(f"{how}, read by {type(error).__name__}", error)
        for damage in verify(Path(log.path)).damage:
            self._complain(f"{how}, verified", damage)

    def _all_of(self, log: LedLog) -> Iterator[bytes]:
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, to_log_end=True)
            yield data
            for batch in decode_batches(data):
                offset = batch.last_offset + 1

    def _as_client(self, how: str, log: LedLog, expected: list[Said]) -> None:
        found = [
            _said(record)
            for data in self._all_of(log)
            for batch in decode_batches(data)
            for record in batch.records
        ]
        if found != expected:
            self._complain(f"{how}, read by a client", f"{len(found)} of {len(expected)} records")

    def _by_time(self, how: str, log: LedLog, expected: list[Said]) -> None:
        times = [each[0] for each in expected]
        for wanted_ms in (0, *self._dice.sample(times, min(5, len(times))), _LATEST_MS):
            found = log.offset_for_time(wanted_ms)
            first = next((at for at, time_ms in enumerate(times) if time_ms >= wanted_ms), None)
            if (found[0] if found else None) != first:
                self._complain(f"{how}, by time {wanted_ms}", f"{found}, not {first}")

    def _as_loader(self, how: str, log: LedLog) -> None:
        table = GroupTable()
        table.set_partition_count(1)
        table.open(0, log)
        for data in self._all_of(log):
            for offset, why in table.load_batches(0, data).left_out:
                self._complain(f"{how}, loaded at {offset}", why)
        table.close(0)

    def _as_cleaner(self, how: str, log: LedLog, expected: list[Said]) -> None:
        read = self._clean(log)
        if read != len(expected):
            self._complain(f"{how}, cleaned", f"{read} of {len(expected)} records")

    def _clean(self, log: LedLog) -> int:
        """How many records were read."""
        log.roll()
        cleaning = Cleaning(
            log.log, 0, log.log_end_offset, map_bytes_max=1 << 20, load_factor=0.9, now_ms=1,
            delete_retention_ms=1,
        )  # fmt: skip
        while cleaning.map_keys(1 << 20):
            pass
        for group in cleaning.groups(1 << 30):
            cleaning.begin_group(*group)
            while cleaning.clean(1 << 20):
                pass
            cleaning.give_up()
        return int(cleaning.records_read)

    # --- What is refused --------------------------------------------------------------------------

    def _look_at_refused(self, batch: bytes) -> None:
        """In a log nevertheless: all readers take it, or none does."""
        log = self._open(follows=True)
        try:
            log.append_as_follower(batch, _EPOCH)
        except KafkaError:
            return  # not even a follower keeps it
        if log.log_end_offset == 0:
            return
        batch = first_batch(batch)
        *_, attributes, last_delta, base_ms, _, _, _, _, count = BATCH_HEADER.unpack_from(batch)
        if last_delta < count - 1 or attributes & CODEC_MASK > Codec.ZSTD:
            return  # the header's numbers are the log's matter alone
        records = batch[HEADER_BYTES:]
        if any(each > last_delta for each in self._deltas(batch)):
            return
        walk = walk_records(records, attributes & CODEC_MASK, count, base_ms, gaps=True)
        if "offsets" in walk.message:
            return  # and so is the order of the records
        verdicts = {
            "the validator": walk.error == 0,
            "a client": self._reads(lambda: list(decode_batches(batch))),
            "the loader": self._loads(batch),
        }
        if len(set(verdicts.values())) > 1:
            self._complain("refused", f"{verdicts} {walk.message}", batch)
        # Of records that go the cleaner reads no more than their keys; what is of a transaction
        # it leaves alone.
        if attributes & (TRANSACTIONAL | CONTROL):
            log.close(clean=False)
            return
        cleaned = self._reads(lambda: self._clean(log))
        if not cleaned and walk.error == 0:
            self._complain("refused by the cleaner alone", "", batch)
        if cleaned and "unpacked" in walk.message:
            self._complain("taken by the cleaner alone", walk.message, batch)
        log.close(clean=False)

    def _reads(self, read: Callable[[], object]) -> bool:
        try:
            read()
        except (KafkaError, ProtocolError, Uncleanable):
            return False
        return True

    def _deltas(self, batch: bytes) -> list[int]:
        base_offset = BATCH_HEADER.unpack_from(batch)[0]
        try:
            (decoded,) = decode_batches(batch)
        except ProtocolError:
            return []
        return [record.offset - base_offset for record in decoded.records]

    def _loads(self, batch: bytes) -> bool:
        table = GroupTable()
        table.set_partition_count(1)
        return not table.load_batches(0, batch).left_out


def run(seed: int, pool: Pool) -> Round:
    with tempfile.TemporaryDirectory(prefix="kbroker-stored-") as place:
        it = Round(Path(place), seed, pool)
        it.run()
        return it


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    pool = make_pool(options.seed)
    taken = refused = wrong = 0
    for seed in range(options.seed, options.seed + options.rounds):
        it = run(seed, pool)
        taken, refused, wrong = taken + it.taken, refused + it.refused, wrong + len(it.complaints)
        for complaint in it.complaints:
            print(f"seed {seed}: {complaint[:1_000]}")
    print(f"{taken} batches taken, {refused} refused, {wrong} complaints")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
