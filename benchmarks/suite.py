"""What `python -m benchmarks all` runs, in turn: a benchmark with its arguments, and smaller ones for a first look."""

from __future__ import annotations

from typing import Final, NamedTuple


class Run(NamedTuple):
    """`python -m benchmarks.NAME ARGUMENTS`, or with `quick` instead: the same work, less of it."""

    name: str
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ("--rounds", "1")


SUITE: Final = (
    Run("start", ("--idle-seconds", "5"), ("--rounds", "1", "--idle-seconds", "1")),
    Run("start", ("--partitions", "1000", "--idle-seconds", "5"), ("--rounds", "1", "--partitions", "20")),
    Run("partitions", (), ("--sizes", "20,50", "--rounds", "1", "--idle-seconds", "1", "--settle-seconds", "1")),
    Run("dump", (), ("--rounds", "1", "--megabytes", "20")),
    Run("dump", ("--full", "--jobs", "deep-iteration"), ("--rounds", "1", "--megabytes", "20", "--codecs", "lz4")),
    Run("lookup", (), ("--rounds", "1", "--entries", "1000000", "--lookups", "20000")),
    Run("bulk_decode", ("--codecs", "none,lz4,zstd"), ("--rounds", "1", "--codecs", "none", "--records", "50000")),
    Run("produce", (), ("--rounds", "1", "--large-requests", "50", "--small-requests", "5000")),
    Run("fetch", (), ("--rounds", "1", "--mb", "64")),
    Run("recovery", (), ("--rounds", "1", "--mb", "50")),
    Run(
        "recovery",
        ("--mb", "100", "--batch-records", "1", "--value-bytes", "100"),
        ("--rounds", "1", "--mb", "5", "--batch-records", "1", "--value-bytes", "100"),
    ),
    Run("append", (), ("--rounds", "1")),
    Run("compaction", ("--full",), ("--rounds", "1", "--megabytes", "20")),
    Run("compaction", ("--megabytes", "100", "--codecs", "lz4,zstd"), ("--rounds", "1", "--megabytes", "5")),
    Run("remote_copy", (), ("--rounds", "1", "--megabytes", "32")),
    Run("remote_read", (), ("--rounds", "1", "--megabytes", "32")),
    Run("cold_readers", (), ("--rounds", "1", "--readers", "2", "--seconds", "2")),
    Run("cold_start", (), ("--rounds", "1", "--segments", "1000", "--partitions", "10")),
    Run(
        "cluster",
        (),
        (
            *("--rounds", "1", "--large-requests", "10", "--small-requests", "20", "--follow-megabytes", "10"),
            *("--partitions", "30", "--idle-seconds", "1"),
        ),
    ),
    Run("spark_scan", (), ("--rounds", "1", "--megabytes", "16")),
    Run("bulk_ingest", (), ("--rounds", "1", "--megabytes", "16")),
    Run("spark_compaction", (), ("--rounds", "1", "--megabytes", "20")),
)
