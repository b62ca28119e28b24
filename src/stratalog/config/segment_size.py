"""The largest allowed segment size: two limits, the second from `metadata.version` 32 on (KIP-1333).

below level 32     [1 MiB, 2^31-1]   positions in offset indexes are signed 32-bit numbers
from level 32 on   [1 MiB, 2^63-1]   ... signed 64-bit numbers
"""

from __future__ import annotations

from stratalog.config.keys import INT_MAX, LONG_MAX, invalid
from stratalog.config.metadata_version import LARGE_SEGMENTS_LEVEL, level_name

SEGMENT_BYTES_MIN = 1024 * 1024


def segment_bytes_max(*, large: bool) -> int:
    """Return the largest `segment.bytes`; `large` says whether the level in force supports large segments."""
    return LONG_MAX if large else INT_MAX


def check_segment_bytes(key: str, value: int, *, large: bool) -> None:
    """Raise InvalidConfigError for a size past the limit in force, saying what it is and how it is lifted.

    The lower end, and the end of a signed 64-bit number, are of the key itself.
    """
    limit = segment_bytes_max(large=large)
    if value > limit:
        raise invalid(
            key,
            value,
            f"Value must be between {SEGMENT_BYTES_MIN} and {limit} while metadata.version is below "
            f"{level_name(LARGE_SEGMENTS_LEVEL)} (level {LARGE_SEGMENTS_LEVEL}). 'stratalog features upgrade "
            f"--release-version 4.4' lifts the limit to {LONG_MAX}; there is no way back then.",
        )
