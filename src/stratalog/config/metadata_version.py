"""Levels of the feature `metadata.version` and their names, as Apache Kafka 4.4.0's `MetadataVersion` lists them.

Level 32 switches large segments on: KIP-1333 calls it IBP_4_4_IV1. Kafka 4.4.0 was released without that KIP and uses
the two newest levels for other things (32: ACLs by network; 33: controllers that unregister), neither of which is in a
partition's files. A new data directory starts at level 31, so that its files equal those of released Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.errors import InvalidUpdateVersionError

METADATA_VERSION = "metadata.version"

#: The first level at which segments may pass 2^31-1 bytes and new offset indexes have 12-byte entries.
LARGE_SEGMENTS_LEVEL = 32
INITIAL_LEVEL = LARGE_SEGMENTS_LEVEL - 1


@dataclass(frozen=True, slots=True)
class MetadataVersion:
    """One level.

    `metadata_changed`: what lower levels cannot read may have been written since, so there is no way back.
    """

    level: int
    release: str
    revision: str
    metadata_changed: bool

    @property
    def name(self) -> str:
        """Such as "4.4-IV1"."""
        return f"{self.release}-{self.revision}"


#: (release, whether each of its revisions changed metadata), the first level being that of 3.3-IV3.
_RELEASES: tuple[tuple[str, int, tuple[bool, ...]], ...] = (
    ("3.3", 3, (True,)),
    ("3.4", 0, (True,)),
    ("3.5", 0, (False, False, True)),
    ("3.6", 0, (False, True, True)),
    ("3.7", 0, (True, False, True, False, False)),
    ("3.8", 0, (False,)),
    ("3.9", 0, (False,)),
    ("4.0", 0, (False, True, False, False)),
    ("4.1", 0, (False, False)),
    ("4.2", 0, (False, False)),
    ("4.3", 0, (True,)),
    ("4.4", 0, (False, True, True)),
)

LEVEL_MIN = 7

VERSIONS = tuple(
    MetadataVersion(LEVEL_MIN + n, release, f"IV{revision}", changed)
    for n, (release, revision, changed) in enumerate(
        (release, revision, changed)
        for release, first, flags in _RELEASES
        for revision, changed in enumerate(flags, first)
    )
)

LEVEL_MAX = VERSIONS[-1].level


def is_large_index_format_supported(level: int) -> bool:
    """Return whether segments may pass 2^31-1 bytes and new offset indexes get 12-byte entries (KIP-1333)."""
    return level >= LARGE_SEGMENTS_LEVEL


def is_supported(level: int) -> bool:
    return LEVEL_MIN <= level <= LEVEL_MAX


def level_name(level: int) -> str:
    """Return the name of a level, such as "4.4-IV1". Raises InvalidUpdateVersionError for one that is not supported."""
    if not is_supported(level):
        raise InvalidUpdateVersionError(
            f"{METADATA_VERSION} level {level} is not supported; levels {LEVEL_MIN} to {LEVEL_MAX} are"
        )
    return VERSIONS[level - LEVEL_MIN].name


def level_for_release(version: str) -> int:
    """Return the level of a release ("4.4": its newest) or of an exact name ("4.4-IV0").

    InvalidUpdateVersionError otherwise.
    """
    matching = [known.level for known in VERSIONS if version in (known.release, known.name)]
    if not matching:
        raise InvalidUpdateVersionError(
            f"Unknown {METADATA_VERSION} '{version}'. Supported {METADATA_VERSION} are: "
            + ", ".join(known.name for known in VERSIONS)
        )
    return matching[-1]


def lost_by_downgrade(current: int, level: int) -> MetadataVersion | None:
    """Return the newest version between the two that wrote what `level` cannot read, or None when the way down is free.

    Below large segments it always is: what Kafka changed there are records of its metadata log, which is not kept here.
    """
    lost = [
        known
        for known in VERSIONS
        if level < known.level <= current and known.metadata_changed and known.level >= LARGE_SEGMENTS_LEVEL
    ]
    return lost[-1] if lost else None
