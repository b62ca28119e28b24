"""Statistics of topics (`stratalog.jobs.measure_topics`) with distinct keys, which Spark counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from pyspark.sql import SparkSession, functions as F

from stratalog.jobs import SILENT, Progress, measure_topics
from stratalog.jobs.stats import SAMPLE_BYTES, TopicStats
from stratalog.spark.executor import SparkExecutor
from stratalog.spark.pipelines.read import source_options
from stratalog.util import uuid_to_base64


def stats(
    spark: SparkSession,
    *,
    paths: Sequence[str | Path] = (),
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topics: Collection[str] | None = None,
    topic_ids: Collection[UUID] = (),
    keys: bool = False,
    sample_bytes: int = SAMPLE_BYTES,
    progress: Progress = SILENT,
) -> TopicStats:
    """Run `measure_topics` on the executors of a session. `keys` also counts distinct keys, which reads all keys."""
    found = measure_topics(
        paths=paths,
        remote=remote,
        remote_options=remote_options,
        topics=topics,
        topic_ids=topic_ids,
        sample_bytes=sample_bytes,
        executor=SparkExecutor(spark),
        progress=progress,
    )
    if not keys:
        return found
    names = sorted({each.topic for each in found.segments})
    return replace(found, distinct_keys=_distinct_keys(spark, names, topic_ids, paths, remote, remote_options or {}))


def _distinct_keys(
    spark: SparkSession,
    topics: Sequence[str],
    topic_ids: Collection[UUID],
    paths: Sequence[str | Path],
    remote: str | None,
    options: Mapping[str, str],
) -> dict[str, int]:
    reader = (
        spark.read.format("stratalog")
        .options(**source_options(paths=paths, remote=remote, remote_options=options, topics=topics))
        .option("columns", "key,topic")
    )
    if topic_ids:
        reader = reader.option("topicId", ",".join(map(uuid_to_base64, topic_ids)))
    frame = reader.load()
    rows = frame.groupBy("topic").agg(F.approx_count_distinct("key").alias("keys")).collect()
    return {str(row["topic"]): int(row["keys"]) for row in rows}
