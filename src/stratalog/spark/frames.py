"""Results of jobs as Spark DataFrames."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from stratalog.jobs.audit import AuditResult
    from stratalog.jobs.retention import RetentionForecast

_FINDINGS = (
    "severity string, tier string, kind string, topic string, partition int, place string, first_offset bigint, "
    "last_offset bigint, bytes bigint, finding string, action string"
)
_FATES = (
    "topic string, partition int, tier string, base_offset bigint, end_offset bigint, bytes bigint, "
    "newest_record bigint, rule string, at bigint, deleted_by bigint, files_gone_by bigint, kept_by string, "
    "explanation string"
)


def audit_frame(spark: SparkSession, audit: AuditResult) -> DataFrame:
    """Return a row for each finding."""
    return spark.createDataFrame([astuple(finding) for finding in audit.findings], _FINDINGS)


def forecast_frame(spark: SparkSession, forecast: RetentionForecast) -> DataFrame:
    """Return a row for each segment, as `RetentionForecast.by_segment`; times are in milliseconds."""
    return spark.createDataFrame([tuple(row) for row in forecast.by_segment().rows], _FATES)
