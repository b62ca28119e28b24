"""The output of `stratalog tier restore`: what was done, or would be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from stratalog.cli.out import counted, notice, on_terminal, print_json, print_rows
from stratalog.config import LogConfig
from stratalog.jobs import size_text
from stratalog.jobs.restore import Judged, PartitionRestore, RestorePlan, Verdict
from stratalog.util import TableColumn, uuid_to_base64

_COLUMNS = (
    TableColumn("topic"),
    TableColumn("partition", is_number=True),
    TableColumn("start offset", is_number=True),
    TableColumn("end offset", is_number=True),
    TableColumn("segments", 2, is_number=True),
    TableColumn("bytes", 1, is_number=True),
    TableColumn("leader epochs", 3),
)


def expiring_notes(plan: RestorePlan, now_ms: int, *, is_read_only: bool | None) -> list[str]:
    """Return a line for each topic whose segments are older than its retention, and go once it is served."""
    notes = []
    for topic in plan.topics:
        retention_ms = LogConfig.from_properties(topic.configs, None, use_large_index_format=True).retention_ms
        segments = [each for each in plan.segments if each.topic_id_partition.topic_id == topic.topic_id]
        old = [each for each in segments if 0 <= retention_ms <= now_ms - each.max_timestamp_ms]
        if old:
            go = (
                "are not served any more, though they stay in the bucket"
                if is_read_only
                else "are deleted from the bucket"
            )
            size = size_text(sum(each.segment_size_bytes for each in old))
            notes.append(
                f"{topic.name}: {len(old)} of {counted(len(segments), 'segment')} ({size}) are older than "
                f"retention.ms={retention_ms} and {go} once it is served; --topic-config retention.ms=-1 keeps them"
            )
    return notes


def print_hint(url: str, data_dir: Path) -> None:
    """Print the next step, for people."""
    if on_terminal():
        notice(
            f"to serve it: stratalog serve --data-dir {data_dir} --set "
            "remote.log.storage.system.enable=true "
            f"--set stratalog.remote.url={url}",
        )


def print_plan(plan: RestorePlan, notes: Iterable[str], *, as_json: bool, dry_run: bool) -> None:
    left = [each for each in plan.judged if not each.verdict.is_taken]
    notes = tuple(notes)
    if as_json:
        _print_json(plan, notes, dry_run)
        return
    rows = [_row(each, size_text if on_terminal() else str) for each in plan.partitions]
    print_rows(_COLUMNS, rows, "To be restored" if dry_run else "Restored")
    for each in left:
        print(_segment_text(each))
    for note in notes:
        print(f"note  {note}")
    for problem in plan.problems:
        print(f"not restored  {problem}")
    taken = sum(len(each.segments) for each in plan.partitions)
    size = sum(segment.segment_size_bytes for segment in plan.segments)
    what = "would be restored" if dry_run else "restored"
    print(
        f"{counted(len(plan.topics), 'topic')}, {counted(len(plan.partitions), 'partition')}, "
        f"{counted(taken, 'segment')}, "
        f"{size_text(size)} {what}; {counted(len(left), 'segment')} left out, {counted(len(plan.problems), 'problem')}"
    )


def _row(plan: PartitionRestore, size_in: Callable[[int], str]) -> tuple[str, ...]:
    size = sum(segment.segment_size_bytes for segment in plan.segments)
    epochs = ",".join(f"{entry.epoch}@{entry.start_offset}" for entry in plan.epochs)
    name, number = plan.partition.topic, plan.partition.partition
    return (
        name,
        str(number),
        str(plan.log_start_offset),
        str(plan.log_end_offset),
        str(len(plan.segments)),
        size_in(size),
        "as they are" if plan.is_local else epochs,
    )


def _segment_text(judged: Judged) -> str:
    offsets = f"{judged.base_offset}-{'?' if judged.end_offset is None else judged.end_offset}"
    why = f" ({judged.why})" if judged.why else ""
    name = f"{judged.partition.topic}-{judged.partition.partition}"
    return (
        f"{name} {offsets} {uuid_to_base64(judged.segment_id)} {judged.size_bytes} bytes: {judged.verdict.value}{why}"
    )


def _print_json(plan: RestorePlan, notes: tuple[str, ...], dry_run: bool) -> None:
    for topic in plan.topics:
        print_json(
            {
                "kind": "topic",
                "topic": topic.name,
                "topic_id": uuid_to_base64(topic.topic_id),
                "partitions": topic.partition_count,
                "configs": dict(topic.configs),
            }
        )
    for each in plan.partitions:
        print_json(
            {
                "kind": "partition",
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "log_start_offset": each.log_start_offset,
                "log_end_offset": each.log_end_offset,
                "segments": len(each.segments),
                "bytes": sum(segment.segment_size_bytes for segment in each.segments),
                "leader_epochs": [[entry.epoch, entry.start_offset] for entry in each.epochs],
                "local": each.is_local,
            }
        )
    for judged in plan.judged:
        print_json(
            {
                "kind": "segment",
                "topic": judged.partition.topic,
                "topic_id": uuid_to_base64(judged.partition.topic_id),
                "partition": judged.partition.partition,
                "segment_id": uuid_to_base64(judged.segment_id),
                "base_offset": judged.base_offset,
                "end_offset": judged.end_offset,
                "bytes": judged.size_bytes,
                "verdict": judged.verdict.name.lower(),
                "taken": judged.verdict.is_taken,
                "why": judged.why,
            }
        )
    verdicts = Counter(judged.verdict for judged in plan.judged)
    print_json(
        {
            "kind": "summary",
            "dry_run": dry_run,
            "segments": {verdict.name.lower(): verdicts[verdict] for verdict in Verdict},
            "problems": list(plan.problems),
            "notes": list(notes),
        }
    )
