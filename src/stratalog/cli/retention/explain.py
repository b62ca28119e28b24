"""`stratalog retention explain`: for each segment of a topic, what keeps it and when it is deleted."""

from __future__ import annotations

from typing import Annotated

import typer

from stratalog.cli.options import (
    AssumedTime,
    CheckInterval,
    CommandConfig,
    DataDirs,
    Json,
    OptionalBootstrapServer,
    WhatIf,
    bootstrap_from_environment,
    key_values,
)
from stratalog.cli.retention.output import print_explained, print_explained_json
from stratalog.cli.retention.sources import RetentionSources, gather
from stratalog.cli.tier import span_ms, time_ms
from stratalog.errors import UnknownTopicOrPartitionError, UsageError
from stratalog.jobs.retention import PartitionForecast, Rhythm, config_of, forecast_retention
from stratalog.util import SYSTEM_CLOCK


def explain(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")] = None,
    what_if: WhatIf = None,
    at: AssumedTime = None,
    data_dir: DataDirs = None,
    bootstrap_server: OptionalBootstrapServer = None,
    command_config: CommandConfig = None,
    check_interval: CheckInterval = "5m",
    json_: Json = False,
) -> int:
    """Explain for every segment, in both tiers, why it is kept, which rule deletes it, and when at the earliest.

    With --data-dir no broker is needed. With --bootstrap-server too, settings and offsets come from the broker. With
    --bootstrap-server alone only whole partitions are explained, because Kafka's protocol does not describe segments.

    \b
    Examples:
      stratalog retention explain orders --data-dir /var/lib/stratalog
      stratalog retention explain orders --partition 3 --data-dir /var/lib/stratalog \\
        --what-if retention.ms=3600000 --at 2026-02-01
      stratalog retention explain orders --bootstrap-server h:9092 --json
    """
    tried = key_values("--what-if", what_if)
    config_of(tried)
    for directory in data_dir or ():
        if not directory.is_dir():
            raise UsageError(f"--data-dir {directory}: no such directory")
    now_ms = SYSTEM_CLOCK.now_ms() if at is None else time_ms(at, "--at")
    rhythm = Rhythm(span_ms(check_interval, "--check-interval"))
    if not data_dir and bootstrap_server is None:
        bootstrap_server = bootstrap_from_environment()
    sources = gather(topic, data_dir or [], bootstrap_server, command_config)
    sources = _only(sources, topic, partition)
    config = config_of(sources.properties, tried)
    forecasts: list[PartitionForecast] = []
    if sources.partitions:
        found = forecast_retention(
            paths=data_dir or (),
            topics={topic},
            configs={topic: sources.properties},
            what_if=tried,
            at_ms=now_ms,
            rhythm=rhythm,
            known={(topic, each.partition): each.offsets for each in sources.served},
        )
        forecasts = [each for each in found.partitions if each.directory and each.partition in sources.partitions]
    show = print_explained_json if json_ else print_explained
    show(topic, config, tried, now_ms, forecasts, sources)
    return 0


def _only(sources: RetentionSources, topic: str, partition: int | None) -> RetentionSources:
    if partition is None:
        return sources
    kept = sources.partitions & {partition}
    served = tuple(each for each in sources.served if each.partition == partition)
    if not kept and not served:
        raise UnknownTopicOrPartitionError(f"{topic} has no partition {partition}")
    return RetentionSources(sources.properties, kept, served, sources.notes)
