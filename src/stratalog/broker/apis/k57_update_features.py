"""UpdateFeatures: finalize a level of `metadata.version`, the only feature here.

From level 32 on (4.4-IV1) segments may pass 2 GiB and new offset indexes have 12-byte entries; there is no way back below
it. Version 1 adds the kinds of downgrade and `validate_only`; 2 has a single error for all features.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.broker.metadata.features import LARGE_SEGMENTS_LEVEL, LEVEL_MAX, LEVEL_MIN, METADATA_VERSION
from stratalog.errors import InvalidRequestError, InvalidUpdateVersionError, KafkaError

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@handles(ApiKey.UPDATE_FEATURES, versions=(0, 2))
async def update_features(ctx: RequestContext, request: Any) -> Any:
    updates = {update.feature: update for update in request.feature_updates}
    try:
        if len(updates) < len(request.feature_updates):
            raise InvalidRequestError("Provided updates contain a feature more than once.")
        for update in updates.values():
            _check(ctx, update)
    except KafkaError as error:
        message = f"The update failed for all features since the following feature had an error: {error}"
        return ctx.respond(error_code=error.code, error_message=message)
    if not getattr(request, "validate_only", False):
        for update in updates.values():
            await ctx.broker.run_blocking(_finalize, ctx, update.max_version_level)
    return ctx.respond(
        error_code=0,
        results=[ctx.make("UpdatableFeatureResult", feature=feature, error_code=0) for feature in updates]
        if ctx.version < 2
        else (),
    )


def _check(ctx: RequestContext, update: Any) -> None:
    level: int = update.max_version_level
    kind = getattr(update, "upgrade_type", None)
    if kind is None:
        kind = _SAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
    refusal = f"Invalid update version {level} for feature {update.feature}."
    if update.feature != METADATA_VERSION:
        raise InvalidUpdateVersionError(
            f"{refusal} Broker {ctx.broker.node_id} does not support this feature."
        )
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise InvalidUpdateVersionError(f"{refusal} The controller does not support the given upgrade type.")
    if not LEVEL_MIN <= level <= LEVEL_MAX:
        raise InvalidUpdateVersionError(
            f"{refusal} Broker {ctx.broker.node_id} only supports versions {LEVEL_MIN}-{LEVEL_MAX}"
        )
    current = ctx.broker.metadata.metadata_version
    if level >= current:
        return
    if kind == _UPGRADE:
        raise InvalidUpdateVersionError(
            f"{refusal} Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if level < LARGE_SEGMENTS_LEVEL <= current:
        why = (
            "Refusing to perform the requested downgrade because it might delete metadata information."
            if kind == _SAFE_DOWNGRADE
            else "Unsafe metadata downgrade is not supported in this version."
        )
        raise InvalidUpdateVersionError(
            f"Unsupported {METADATA_VERSION} downgrade from {current} to {level}. {why}"
        )


def _finalize(ctx: RequestContext, level: int) -> None:
    ctx.broker.metadata.set_metadata_version(level)
    ctx.broker.topics.refresh_configs()
