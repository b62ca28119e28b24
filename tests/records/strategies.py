"""Hypothesis strategies for record batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from stratalog.records import Codec, Record, build_batch

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
CONTENTS = (
    st.none()
    | st.binary(max_size=40)
    | st.builds(lambda b, n: bytes([b]) * n, st.integers(0, 255), st.integers(0, 9000))
)
HEADERS = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-1, 2**45)


@dataclass(frozen=True)
class Model:
    """A batch as plain values: what was written, and so what must be read."""

    records: list[Record]
    options: dict[str, Any]

    def encoded(self) -> bytes:
        return build_batch(self.records, **self.options)

    def expected(self) -> list[Record]:
        base_sequence = self.options["base_sequence"]
        return [
            replace(
                record,
                timestamp_ms=self._timestamp(record),
                sequence=(base_sequence + record.offset - self.options["base_offset"]) % 2**31
                if base_sequence >= 0
                else -1,
            )
            for record in self.records
        ]

    def _timestamp(self, record: Record) -> int:
        append_time = self.options["log_append_time_ms"]
        return record.timestamp_ms if append_time is None else append_time

    def rows(self) -> list[dict[str, Any]]:
        """The rows of `decode_columns`."""
        return [
            {
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "timestamp_type": 0 if self.options["log_append_time_ms"] is None else 1,
                "key": record.key,
                "value": record.value,
                "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
                "producer_id": self.options["producer_id"],
                "producer_epoch": self.options["producer_epoch"],
                "sequence": record.sequence,
                "leader_epoch": self.options["partition_leader_epoch"],
            }
            for record in self.expected()
        ]


@st.composite
def batches(draw: st.DrawFn, base_offset: int | None = None, codec: Codec | None = None) -> Model:
    """Any batch with records: gaps between offsets, nulls, headers, every codec and header field."""
    if base_offset is None:
        base_offset = draw(st.integers(0, 2**62))
    gaps = draw(st.lists(st.integers(1, 3) | st.integers(1, 300), min_size=1, max_size=12))
    offset = base_offset - 1 + draw(st.sampled_from([0, 0, 5]))
    records = []
    for gap in gaps:
        offset += gap
        records.append(Record(offset, draw(TIMESTAMPS), draw(CONTENTS), draw(CONTENTS), draw(HEADERS)))
    options = {
        "base_offset": base_offset,
        "codec": draw(st.sampled_from(Codec)) if codec is None else codec,
        "log_append_time_ms": draw(st.none() | TIMESTAMPS),
        "producer_id": draw(st.integers(-1, 2**63 - 1)),
        "producer_epoch": draw(INT16),
        "base_sequence": draw(st.integers(-1, 2**31 - 1)),
        "partition_leader_epoch": draw(INT32),
        "is_transactional": draw(st.booleans()),
        "delete_horizon_ms": draw(st.none() | TIMESTAMPS),
    }
    return Model(records, options)


@st.composite
def logs(draw: st.DrawFn) -> list[Model]:
    """Batches in the order of a log."""
    base_offset = draw(st.integers(0, 2**62))
    models = []
    for _ in range(draw(st.integers(0, 4))):
        model = draw(batches(base_offset))
        models.append(model)
        base_offset = model.records[-1].offset + 1 + draw(st.integers(0, 2))
    return models
