"""Names of everything in a partition directory, as Apache Kafka spells them.

    00000000000000001007.log         a segment: 20-digit base offset and the kind of file
    00000000000000001007.snapshot    producer state as of that offset
    orders-3                         a partition directory: topic, '-', partition
    orders-3.<uuid hex>-delete       a partition that is being deleted

A segment file gets a second suffix while it is replaced or removed: `.deleted`, `.cleaned`, `.swap`.
"""

from __future__ import annotations

import re

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
#: Of a small file that is being written; it gets its name once it is whole.
UNFINISHED_SUFFIX = ".tmp"

DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
#: The directory of KRaft's own log.
METADATA_LOG = "__cluster_metadata-0"
#: Ours, in the partitions of `__remote_log_metadata`.
REMOTE_METADATA_SNAPSHOT = "remote_log_metadata_snapshot"

_NAME = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.deleted|\.cleaned|\.swap)?")
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9]\d{0,9})")
_FUTURE_PARTITION = re.compile(r"(.+)\.[0-9a-f]{32}-future")
_MARKED_PARTITION = re.compile(r"\.[0-9a-f]{32}-(delete|future|stray)$")


def log_file(base_offset: int) -> str:
    return f"{base_offset:020d}{LOG_SUFFIX}"


def offset_index_file(base_offset: int) -> str:
    return f"{base_offset:020d}{OFFSET_INDEX_SUFFIX}"


def time_index_file(base_offset: int) -> str:
    return f"{base_offset:020d}{TIME_INDEX_SUFFIX}"


def txn_index_file(base_offset: int) -> str:
    return f"{base_offset:020d}{TXN_INDEX_SUFFIX}"


def snapshot_file(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def parse_file_name(name: str) -> tuple[int, str, str] | None:
    """Split a name into (offset, suffix, second suffix or ''); None for a file that is no segment file or snapshot."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1]), match[2], match[3] or ""


def parse_future_dir(name: str) -> tuple[str, int] | None:
    """Topic and partition of a copy that is to take the place of a partition directory; None for any other name."""
    match = _FUTURE_PARTITION.fullmatch(name)
    return None if match is None else parse_partition_dir(match[1])


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """Topic and partition of a live partition directory; None for any other name.

    Directories that are being deleted, moved or were found stray are not live.
    """
    if _MARKED_PARTITION.search(name):
        return None
    match = _PARTITION.fullmatch(name)
    if match is None or match[1] in (".", ".."):
        return None
    return match[1], int(match[2])
