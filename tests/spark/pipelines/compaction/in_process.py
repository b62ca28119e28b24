"""The steps of a compaction without Spark: the same functions over Arrow, with sorts in place of the shuffles."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from stratalog.spark.pipelines.compaction import shuffle, work
from stratalog.spark.pipelines.compaction.plan import (
    CompactionPlan,
    PartitionSurvey,
    keys_tasks,
    rewrite_tasks,
)
from stratalog.spark.pipelines.compaction.values import Rewritten

Rows = list[tuple[Any, ...]]


def survey_in_process(plans: Sequence[CompactionPlan], *, buckets: int = 1) -> tuple[list[PartitionSurvey], Rows]:
    """Steps 1 and 2; `buckets` for each partition. Also the rows of superseded offsets."""
    tasks, _ = keys_tasks(plans, [buckets * 1_000_000] * len(plans), 1)
    step = work.KeysWork([zlib.compress(pickle.dumps(tasks))], [plan.first_dirty_offset for plan in plans])
    keys = rows_of(step(iter([numbers(0)])))
    keys.sort(key=lambda row: (row[0], -int(row[1]), -int(row[2])))
    owners, _ = shuffle.owners_of(plans)
    newest = rows_of(work.NewestWork(owners)(iter([batch_of(keys, work.KEYS_SCHEMA)] if keys else [])))
    found = shuffle.surveyed(plans, (row[2] for row in newest if row[0] == work.FACTS))
    return found, [row for row in newest if row[0] != work.FACTS]


def compact_in_process(plans: Sequence[CompactionPlan], *, buckets: int = 1) -> list[list[Rewritten]]:
    """The new segments of each partition, in order."""
    surveyed, rows = survey_in_process(plans, buckets=buckets)
    rows.sort(key=lambda row: (row[0], row[1]))
    _, first_groups = shuffle.owners_of(plans)
    made: list[list[Rewritten]] = []
    for part, plan in enumerate(plans):
        tasks = rewrite_tasks(part, plan, surveyed[part])
        step = work.RewriteWork({first_groups[part] + task.group: zlib.compress(pickle.dumps(task)) for task in tasks})
        outcomes = [pickle.loads(row[0]) for row in rows_of(step(iter([batch_of(rows, work.NEWEST_SCHEMA)])))]
        for outcome in outcomes:
            assert isinstance(outcome, Rewritten), outcome
        made.append(sorted(outcomes, key=lambda new: new.group))
    return made


def numbers(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], ["id"])


def batch_of(rows: Rows, schema: str) -> pa.RecordBatch:
    kinds = {"int": pa.int32(), "long": pa.int64(), "binary": pa.binary()}
    fields = [field.split() for field in schema.split(", ")]
    arrays = [pa.array([row[at] for row in rows], kinds[kind]) for at, (_, kind) in enumerate(fields)]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in fields])


def rows_of(batches: Iterator[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
