"""`stratalog features`: feature levels of a cluster, such as `metadata.version`. Output as in kafka-features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stratalog.broker.metadata import UpgradeType
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import DryRun, Json
from stratalog.cli.out import on_terminal, print_json
from stratalog.config import METADATA_VERSION, is_supported, level_for_release, level_name, level_with
from stratalog.errors import UsageError
from stratalog.util import print_table
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, Cluster, ConnectionOptions, RefusedError, check

ReleaseVersion = Annotated[
    str | None,
    typer.Option(
        "--release-version", metavar="V", help="Use the levels of a release (4.4) or of one version (4.4-IV1)."
    ),
]
FeatureLevels = Annotated[
    list[str] | None,
    typer.Option("--feature", metavar="NAME=LEVEL", help="Set one feature to this level."),
]


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature as a broker describes it. Level 0 is not finalized."""

    name: str
    min_level: int
    max_level: int
    level: int

    def name_of(self, level: int) -> str:
        return level_name(level) if self.name == METADATA_VERSION and is_supported(level) else str(level)


def describe(servers: ClusterOptions, json_: Json = False) -> int:
    """Describe supported and finalized feature levels.

    \b
    Example:
      stratalog features describe --bootstrap-server h:9092
    """
    with servers.open() as cluster:
        features, epoch = _features_of(cluster.any)
    if json_:
        print_json({"features": [_as_json(feature) for feature in features], "epoch": epoch})
    elif on_terminal():
        rows = [(f.name, *(f.name_of(level) for level in (f.min_level, f.max_level, f.level))) for f in features]
        print_table(("feature", "from", "to", "finalized"), rows, f"epoch {epoch}")
    else:
        for f in features:
            print(
                f"Feature: {f.name:<40}  SupportedMinVersion: {f.name_of(f.min_level):<15}  "
                f"SupportedMaxVersion: {f.name_of(f.max_level):<15}  "
                f"FinalizedVersionLevel: {f.name_of(f.level):<15}  Epoch: {epoch}"
            )
    return 0


def upgrade(
    servers: ClusterOptions,
    release_version: ReleaseVersion = None,
    feature: FeatureLevels = None,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Raise feature levels.

    From metadata.version 32 (4.4-IV1) on, segments may be larger than 2 GiB. That level cannot be lowered again.

    \b
    Examples:
      stratalog features upgrade --bootstrap-server h:9092 --release-version 4.4
      stratalog features upgrade --bootstrap-server h:9092 --dry-run \\
        --feature metadata.version=32
    """
    options = servers.connection()
    return _update(options, release_version, feature, UpgradeType.UPGRADE, dry_run, json_)


def downgrade(
    servers: ClusterOptions,
    release_version: ReleaseVersion = None,
    feature: FeatureLevels = None,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Lower the level even if metadata may be lost.")] = False,
    dry_run: DryRun = False,
    json_: Json = False,
) -> int:
    """Lower feature levels. Refused if data was written that the lower level cannot read.

    \b
    Example:
      stratalog features downgrade --bootstrap-server h:9092 \\
        --feature metadata.version=30
    """
    kind = UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE
    options = servers.connection()
    return _update(options, release_version, feature, kind, dry_run, json_)


def _update(
    options: ConnectionOptions,
    release: str | None,
    given: list[str] | None,
    kind: UpgradeType,
    dry_run: bool,
    json_: bool,
) -> int:
    verb = "upgrade" if kind is UpgradeType.UPGRADE else "downgrade"
    if release is not None and given:
        raise UsageError("give either --release-version or --feature")
    if release is None and not given:
        raise UsageError(f"nothing to {verb}: give --release-version V or --feature NAME=LEVEL")
    levels = {} if release is not None else _parse_levels(given or [])
    wanted = None if release is None else level_for_release(release)
    with Cluster(options) as cluster:
        if wanted is not None:
            levels = _levels_of_release(wanted, _features_of(cluster.any)[0], kind)
        answer = cluster.any.call(
            ApiKey.UPDATE_FEATURES,
            (1, 2),
            timeout=30_000,
            validate_only=dry_run,
            feature_updates=[
                {"feature": name, "max_version_level": level, "upgrade_type": int(kind)}
                for name, level in levels.items()
            ],
        )
    names = ", ".join(f"{name} to {level}" for name, level in sorted(levels.items()))
    check_update_answer(answer, f"Could not {verb} {names}")
    if json_:
        print_json({"dryRun": dry_run, "type": kind.name.lower(), "features": levels})
        return 0
    done = f"can be {verb}d" if dry_run else f"was {verb}d"
    for name, level in sorted(levels.items()):
        print(f"{name} {done} to {level}.")
    return 0


def check_update_answer(answer: Any, what: str) -> None:
    """Raise RefusedError with the first error of a response to UpdateFeatures, if any."""
    check(answer.error_code, answer.error_message, what)
    for result in getattr(answer, "results", ()):
        check(result.error_code, result.error_message, what)


def _parse_levels(given: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for text in given:
        name, separator, level = text.partition("=")
        if not separator or not name.strip() or not level.strip().isdecimal() or int(level) >= 2**15:
            raise UsageError(f"--feature {text}: expected NAME=LEVEL, such as {METADATA_VERSION}=32")
        if name.strip() in levels:
            raise UsageError(f"--feature {name.strip()} is given twice")
        levels[name.strip()] = int(level)
    return levels


def _levels_of_release(release: int, supported: list[Feature], kind: UpgradeType) -> dict[str, int]:
    """Return the levels of known features that a release would change in this direction."""
    levels = {METADATA_VERSION: release}
    for feature in supported:
        level = level_with(feature.name, release)
        if level is None:
            continue
        moves = level > feature.level if kind is UpgradeType.UPGRADE else level < feature.level
        if moves:
            levels[feature.name] = level
    return levels


def _features_of(client: Client) -> tuple[list[Feature], int]:
    """Return the features of a broker, by name, and the epoch of the finalized levels."""
    answer = client.api_versions
    if not hasattr(answer, "supported_features"):
        raise RefusedError("the broker is too old: it has no feature levels")
    finalized = {feature.name: int(feature.max_version_level) for feature in answer.finalized_features}
    features = [
        Feature(known.name, int(known.min_version), int(known.max_version), finalized.get(known.name, 0))
        for known in answer.supported_features
    ]
    return sorted(features, key=lambda feature: feature.name), int(answer.finalized_features_epoch)


def _as_json(feature: Feature) -> dict[str, Any]:
    return {
        "feature": feature.name,
        "supportedMinVersion": feature.min_level,
        "supportedMaxVersion": feature.max_level,
        "finalizedVersionLevel": feature.level,
        "finalizedVersion": feature.name_of(feature.level),
    }
