"""What a worker process loads once before it writes."""

from __future__ import annotations

from functools import cache


@cache
def settle_worker() -> None:
    """The native loops, from their cache."""
    from stratalog.records import columns_encode
    from stratalog.spark.sink import partitioner

    columns_encode.warm()
    partitioner.warm()
