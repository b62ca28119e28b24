"""Every module of native loops that Python calls, by use, and the one warm-up.

A loop is compiled for its one signature, or read from numba's cache, when its module is imported (`toolkit.compiled`),
and never later. Code that must not wait, such as an event loop, warms up first. Importing this module loads no numba.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

KERNELS: Final[Mapping[str, tuple[str, ...]]] = {
    "produce": ("stratalog.records.native.record_scan",),
    "decode": ("stratalog.records.native.header_scan", "stratalog.records.native.columns"),
    "encode": ("stratalog.records.native.encode",),
    "clean": (
        "stratalog.log.cleaner.map_kernel",
        "stratalog.log.cleaner.keys_kernel",
        "stratalog.log.cleaner.filter_kernel",
        "stratalog.log.cleaner.output_kernel",
    ),
    "dump": ("stratalog.cli.dump.bulk_kernel",),
    "compact": (
        "stratalog.jobs.compaction.keys_kernel",
        "stratalog.jobs.compaction.newest_kernel",
    ),
    "partition": ("stratalog.spark.sink.partition_kernel",),
}


def warm(*uses: str) -> None:
    """Compile the native loops of these uses, by default of all, or read them from numba's cache."""
    for use in uses or KERNELS:
        for module in KERNELS[use]:
            import_module(module)
