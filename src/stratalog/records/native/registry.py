"""Every module of native loops that Python calls, by use, and the one warm-up.

A loop is loaded as machine code, or compiled for its one signature, when its module is imported (`toolkit.compiled`),
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
    "recover": ("stratalog.log.recovery.scan_kernel",),
    "search": ("stratalog.log.index.search_kernel",),
    "dump": ("stratalog.cli.dump.bulk_kernel",),
    "compact": (
        "stratalog.jobs.compaction.keys_kernel",
        "stratalog.jobs.compaction.newest_kernel",
    ),
    "partition": ("stratalog.spark.sink.partition_kernel",),
}

#: Modules from which loops take parts: helpers, constants, structures.
SHARED: Final[tuple[str, ...]] = (
    "stratalog.log.cleaner.batch_kernel",
    "stratalog.log.cleaner.chunk_kernel",
    "stratalog.log.cleaner.context",
    "stratalog.log.cleaner.md5_kernel",
    "stratalog.records.batch_format",
    "stratalog.records.native.compiling",
    "stratalog.records.native.crc32c",
    "stratalog.records.native.dtype",
    "stratalog.records.native.jit",
    "stratalog.records.native.kept_loops",
    "stratalog.records.native.record",
    "stratalog.records.native.toolkit",
)


def warm(*uses: str) -> None:
    """Load the native loops of these uses, by default of all, or compile those that are not kept."""
    for use in uses or KERNELS:
        for module in KERNELS[use]:
            import_module(module)
