"""Check updates of features: pure, with the errors of Kafka's `FeatureControlManager`.

From level 32 of `metadata.version` on (4.4-IV1), segments may exceed 2 GiB and new offset indexes have 12-byte entries
(KIP-1333); a downgrade below it is impossible. Other features of Kafka are stored at any given level.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from stratalog.config import (
    LARGE_SEGMENTS_LEVEL,
    LEVEL_MAX,
    LEVEL_MIN,
    METADATA_VERSION,
    OTHER_FEATURES,
    level_name,
    lost_by_downgrade,
)
from stratalog.errors import InvalidUpdateVersionError


def supported_levels(feature: str) -> range | None:
    """Return the levels of a feature that can be finalized, or None for an unknown one."""
    if feature == METADATA_VERSION:
        return range(LEVEL_MIN, LEVEL_MAX + 1)
    highest = OTHER_FEATURES.get(feature)
    return None if highest is None else range(highest + 1)


class UpgradeType(IntEnum):
    """The kind of upgrade that a client allows; the numbers are those of UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """Finalize `level` of `feature`. `kind` is an `UpgradeType`, or an unknown number."""

    feature: str
    level: int
    kind: int


def check_update(update: FeatureUpdate, current: int, *, node_id: int) -> None:
    """Raise InvalidUpdateVersionError unless the feature may change from level `current` to that of `update`."""
    if update.kind not in set(UpgradeType):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    supported = supported_levels(update.feature)
    if supported is None:
        why = f"Local controller {node_id} does not support this feature."
        raise _invalid(update, why if update.level else f"Feature {update.feature} not found.")
    if update.level not in supported:
        raise _invalid(update, f"Local controller {node_id} only supports versions {supported[0]}-{supported[-1]}")
    if update.level > current and update.kind != UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if update.level < current:
        _check_downgrade(update, current)


def _check_downgrade(update: FeatureUpdate, current: int) -> None:
    if update.kind == UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if update.feature != METADATA_VERSION:
        return
    if lost_by_downgrade(current, update.level) is None:
        return
    why = (
        "Refusing to perform the requested downgrade because it might delete metadata information."
        if update.kind == UpgradeType.SAFE_DOWNGRADE
        else "Unsafe metadata downgrade is not supported in this version."
    )
    if update.level < LARGE_SEGMENTS_LEVEL:
        why += (
            f" Since level {LARGE_SEGMENTS_LEVEL} ({level_name(LARGE_SEGMENTS_LEVEL)}) there may be segments past 2 "
            "GiB and"
            " offset indexes with 12-byte entries (KIP-1333), which lower levels cannot hold."
        )
    raise InvalidUpdateVersionError(f"Unsupported {METADATA_VERSION} downgrade from {current} to {update.level}. {why}")


def _invalid(update: FeatureUpdate, why: str) -> InvalidUpdateVersionError:
    return InvalidUpdateVersionError(f"Invalid update version {update.level} for feature {update.feature}. {why}")
