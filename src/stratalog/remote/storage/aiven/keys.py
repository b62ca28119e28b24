"""Object keys of this layout: the same stem as ours with other suffixes."""

from __future__ import annotations

from stratalog.remote.api import RemoteLogSegmentMetadata
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind

LOG = "log"
INDEXES = "indexes"
MANIFEST = "rsm-manifest"

#: In order of deletion: without its manifest a segment does not exist.
SUFFIXES = (MANIFEST, LOG, INDEXES)


def aiven_key(key: ObjectKey, suffix: str) -> str:
    """Return the key of one of the three objects of a segment."""
    stem = str(key).removesuffix(f".{key.kind.value}")
    return f"{stem}.{suffix}"


def main_path(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the part of a segment's keys between prefix and suffix."""
    return str(ObjectKey.of(metadata, ObjectKind.LOG)).removesuffix(f".{ObjectKind.LOG.value}")


def object_key(key: ObjectKey) -> str:
    """Return the key of a content in this layout."""
    return aiven_key(key, suffix(key.kind))


def suffix(kind: ObjectKind) -> str:
    return {ObjectKind.LOG: LOG, ObjectKind.MANIFEST: MANIFEST}.get(kind, INDEXES)


def parse_manifest_key(key: str) -> ObjectKey | None:
    """Return the segment of a manifest key of this layout, or None for any other key."""
    stem, separator, suffix = key.rpartition(".")
    if not separator or suffix != MANIFEST:
        return None
    return ObjectKey.parse(f"{stem}.{ObjectKind.MANIFEST.value}")
