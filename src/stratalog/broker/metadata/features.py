"""Levels of the feature `metadata.version` and their names, as Apache Kafka 4.4.0's `MetadataVersion` lists them.

Level 32 (IBP_4_4_IV1) switches large segments on (KIP-1333). A new data directory starts one below it, so that its files
equal those of released Kafka.
"""

from __future__ import annotations

from stratalog.errors import InvalidUpdateVersionError

METADATA_VERSION = "metadata.version"

#: The first level at which segments may pass 2^31-1 bytes and new offset indexes have 12-byte entries.
LARGE_SEGMENTS_LEVEL = 32
INITIAL_LEVEL = LARGE_SEGMENTS_LEVEL - 1

_NAMES = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2",
    "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0",
    "4.2-IV1", "4.3-IV0", "4.4-IV0", "4.4-IV1", "4.4-IV2",
)  # fmt: skip

LEVEL_MIN = 7
LEVEL_MAX = LEVEL_MIN + len(_NAMES) - 1


def level_name(level: int) -> str:
    """The name of a level, such as "4.4-IV1"; InvalidUpdateVersionError for one that is not supported."""
    if not LEVEL_MIN <= level <= LEVEL_MAX:
        raise InvalidUpdateVersionError(
            f"{METADATA_VERSION} level {level} is not supported; levels {LEVEL_MIN} to {LEVEL_MAX} are"
        )
    return _NAMES[level - LEVEL_MIN]


def level_for_release(version: str) -> int:
    """The level of a release ("4.4": its newest) or of an exact name ("4.4-IV0"); InvalidUpdateVersionError otherwise."""
    matching = [
        LEVEL_MIN + n for n, name in enumerate(_NAMES) if name == version or name.startswith(f"{version}-")
    ]
    if not matching:
        raise InvalidUpdateVersionError(
            f"unknown {METADATA_VERSION} '{version}'; known are {_NAMES[0]} to {_NAMES[-1]}"
        )
    return matching[-1]
