"""Keys of objects of this layout: the same stem as ours, other suffixes."""

from __future__ import annotations

from stratalog.remote.api import RemoteLogSegmentMetadata
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind

LOG = "log"
INDEXES = "indexes"
MANIFEST = "rsm-manifest"

#: In the order in which they are deleted: without its manifest a segment does not exist.
SUFFIXES = (MANIFEST, LOG, INDEXES)


def aiven_key(key: ObjectKey, suffix: str) -> str:
    """Return the key of one of the three objects of the segment that `key` is of."""
    stem = str(key).removesuffix(f".{key.kind.value}")
    return f"{stem}.{suffix}"


def main_path(metadata: RemoteLogSegmentMetadata) -> str:
    """Return what the keys of a segment have between prefix and suffix."""
    return str(ObjectKey.of(metadata, ObjectKind.LOG)).removesuffix(f".{ObjectKind.LOG.value}")


def object_key(key: ObjectKey) -> str:
    """Return where the content that `key` names in our layout lies in this one."""
    return aiven_key(key, suffix(key.kind))


def suffix(kind: ObjectKind) -> str:
    """Return the suffix of the object that holds a content."""
    return {ObjectKind.LOG: LOG, ObjectKind.MANIFEST: MANIFEST}.get(kind, INDEXES)


def parse_manifest_key(key: str) -> ObjectKey | None:
    """Return the segment whose manifest of this layout `key` is, or None for every other key."""
    stem, separator, suffix = key.rpartition(".")
    if not separator or suffix != MANIFEST:
        return None
    return ObjectKey.parse(f"{stem}.{ObjectKind.MANIFEST.value}")
