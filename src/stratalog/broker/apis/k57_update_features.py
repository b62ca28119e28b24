"""UpdateFeatures: finalize levels of features, in force before the response is sent.

All updates of a request are applied, or none. Version 0 allows upgrades only (as in Kafka, `allow_downgrade` is
ignored); version 1 adds the kinds of downgrade and `validate_only`; 2 has a single error for all features.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.metadata import FeatureUpdate, FinalizedFeatures, UpgradeType, check_update
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.config import SHARE_VERSION
from stratalog.errors import KafkaError

#: Kafka's message for each updated feature, up to version 1.
_NO_ERROR = "NONE"


@handles(ApiKey.UPDATE_FEATURES, versions=(0, 2))
async def update_features(ctx: RequestContext, request: Any) -> Any:
    # The last of several updates of a feature wins.
    updates = {
        update.feature: FeatureUpdate(
            update.feature, update.max_version_level, getattr(update, "upgrade_type", UpgradeType.UPGRADE)
        )
        for update in request.feature_updates
    }
    validate_only = getattr(request, "validate_only", False)
    try:
        await ctx.broker.workers.run(_update, ctx, list(updates.values()), validate_only)
    except KafkaError as error:
        message = f"The update failed for all features since the following feature had an error: {error}"
        return ctx.respond(error_code=error.code, error_message=message)
    if ctx.broker.metadata.features.level(SHARE_VERSION) < 1:
        ctx.broker.share_leader.switch_off()
    return ctx.respond(
        error_code=0,
        results=[
            ctx.make("UpdatableFeatureResult", feature=feature, error_code=0, error_message=_NO_ERROR)
            for feature in updates
        ]
        if ctx.version < 2
        else (),
    )


def _update(ctx: RequestContext, updates: list[FeatureUpdate], validate_only: bool) -> None:
    broker = ctx.broker

    def check(current: FinalizedFeatures) -> None:
        for update in updates:
            check_update(update, current.level(update.feature), node_id=broker.node_id)

    if validate_only:
        check(broker.metadata.features)
    else:
        broker.topics.finalize_features({update.feature: update.level for update in updates}, check)
