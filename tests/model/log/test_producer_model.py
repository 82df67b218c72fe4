"""Producer state in C against the model: random sequences, wraps, duplicates, whole groups."""

from __future__ import annotations

import tempfile
import uuid
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.errors import ErrorCode
from tests.model.log.producer_model import SEQUENCES, ProducerModel
from tests.support.led_log import open_led_log
from tests.support.record_batches import build_batch

LARGEST = SEQUENCES - 1
SEQUENCE = st.one_of(
    st.integers(0, 8), st.integers(LARGEST - 4, LARGEST), st.sampled_from([100, 2**30])
)
BATCH = st.tuples(st.integers(0, 2), st.integers(0, 2), SEQUENCE, st.integers(1, 4))


@given(groups=st.lists(st.lists(BATCH, min_size=1, max_size=8), max_size=12), follow=st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_answer_is_the_models(
    groups: list[list[tuple[int, int, int, int]]], follow: bool
) -> None:
    model = ProducerModel()
    with tempfile.TemporaryDirectory() as scratch:
        log = open_led_log(Path(scratch) / "words-0", "words", 0, uuid.UUID(int=1), {})
        log.set_leadership(1, True, 0, 1)
        end = 0
        for group in groups:
            batches, expected = [], []
            for producer_id, epoch, sequence, count in group:
                known = model.producers.get(producer_id)
                if follow and known and known.batches and sequence % 3:
                    # Mostly what a real producer would send next, or again.
                    first, last, _ = known.batches[-(sequence % len(known.batches)) - 1]
                    epoch = known.epoch
                    if sequence % 3 == 1:
                        sequence = (known.batches[-1][1] + 1) % SEQUENCES
                    else:
                        sequence, count = first, (last - first) % SEQUENCES + 1
                batches.append(
                    build_batch(
                        [b"v"] * count, producer_id=producer_id, producer_epoch=epoch,
                        base_sequence=sequence,
                    )
                )  # fmt: skip
                verdict = model.judge(producer_id, epoch, sequence, count)
                if isinstance(verdict, ErrorCode):
                    expected.append((int(verdict), -1))
                elif verdict is not None:
                    expected.append((0, verdict))
                else:
                    model.note(producer_id, epoch, sequence, count, end)
                    expected.append((0, end))
                    end += count
            results = log.append_group(batches)
            assert [(r.error, r.base_offset) for r in results] == expected
        assert log.log_end_offset == end
        log.close(clean=False)
