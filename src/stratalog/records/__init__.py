"""Record batches: read, validate, write, and decode in bulk. See `docs/formats/record_batch.md`.

Importing this package is cheap: native libraries load at their first use.
"""

from __future__ import annotations

from stratalog.records.batch import RecordBatch, iter_batches, stamp_batch
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record

__all__ = ["Codec", "Record", "RecordBatch", "build_batch", "iter_batches", "stamp_batch"]
