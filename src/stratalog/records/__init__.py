"""Record batches: read, validate, write, and decode in bulk. See `docs/formats/record_batch.md`.

Importing this package is cheap: native libraries load at their first use.
"""

from __future__ import annotations

from stratalog.records.batch import RecordBatch, iter_batches, stamp_batch
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.records.validation import validate_client_batches

__all__ = [
    "Codec",
    "ControlType",
    "Record",
    "RecordBatch",
    "build_batch",
    "end_transaction_marker",
    "iter_batches",
    "stamp_batch",
    "validate_client_batches",
]
