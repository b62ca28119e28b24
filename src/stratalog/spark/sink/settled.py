"""Preparation of a worker process that writes."""

from __future__ import annotations

from functools import cache


@cache
def settle_worker() -> None:
    """Load the native loops from their cache."""
    from stratalog.records.native import warm  # loads numba

    warm("encode", "partition")
