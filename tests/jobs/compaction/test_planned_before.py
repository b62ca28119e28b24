"""A query that was planned before a compaction of its bucket, and reads after it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.byte_sources import ByteSources
from stratalog.jobs.compaction import bucket
from stratalog.jobs.compaction.bucket_job import BucketJob, job_above
from stratalog.jobs.compaction.tiered import InBucket
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.object_names import ObjectKey
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark.model.split_plan import SplitPlan
from stratalog.spark.options.data_loss import on_data_loss
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.planning.filters import Constraints
from stratalog.spark.planning.planner import Planner
from stratalog.spark.reading.decode import Selection
from stratalog.spark.reading.rows import decoded_columns
from stratalog.spark.reading.split_reader import SplitReader
from stratalog.testing.clock import ManualClock
from tests.jobs.compaction.in_process import compact_in_process
from tests.spark.partitions import T0, Partition, scan, steady

KEY = bytes(range(32))
ENCODINGS = {
    "plain": Encoding(),
    "zstd": Encoding(Compression.ZSTD),
    "aes": Encoding(Compression.NONE, Keyring({key_id(KEY): KEY}, key_id(KEY))),
}


@pytest.mark.parametrize("kind", list(ENCODINGS))
def test_it_reads_what_it_planned_until_the_grace_ends(tmp_path: Path, kind: str) -> None:
    partition = Partition(tmp_path / "data", index_interval=200)
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    for base in [partition.segment(steady(20, value_size=50)) for _ in range(3)]:
        partition.upload_to(store, base, encoding=ENCODINGS[kind])
    (tmp_path / "key").write_bytes(KEY)
    keys = {"encryption.key.file": str(tmp_path / "key")} if kind == "aes" else {}
    options: dict[str, Any] = {"remote": store.url, "subscribe": "orders", "splitBytes": "3k"}
    options |= {f"remote.{name}": value for name, value in keys.items()}
    parsed = ReadOptions.parse(options)
    places = ByteSources.of(parsed)
    plans = Planner(parsed, Constraints(), places).plan()
    assert len(plans) > 3

    target = compact(store, keys)
    assert len(list_remote_segments(store)) == 1
    compacted = scan(**{name.replace(".", "__"): value for name, value in options.items()}).offsets
    assert compacted == [each.offset for each in partition.records if each.key is not None]
    assert offsets_read(places, plans) == [each.offset for each in partition.records]

    target.clean_up(0)
    assert not [info.key for info in store.list() if "replaced" in info.key or ".job" in info.key]
    assert {key.segment_id.id for info in store.list() if (key := ObjectKey.parse(info.key))} == {
        each.segment_id for each in list_remote_segments(store)
    }


def compact(store: ObjectStore, keys: dict[str, str]) -> InBucket:
    """Everything but the end of it."""
    places = ByteSources(store.url, keys)
    manifests = list_remote_segments(store, covered=True)
    job = BucketJob(places.store, ["orders"], job_above(each.segment_id for each in manifests))
    target = InBucket(places.store, job, ManualClock(T0))
    target.begin(manifests)
    config = bucket.config_of(manifests, {"cleanup.policy": "compact"})
    plan = bucket.bucket_plan(places, manifests, config, first_dirty_offset=0, now_ms=T0, job=job.id)
    (made,) = compact_in_process([plan.plan])
    target.replace(plan, bucket.new_manifests(made))
    return target


def offsets_read(places: ByteSources, plans: list[SplitPlan]) -> list[int]:
    """By a worker that has just got the plans, and nothing else."""
    lost = on_data_loss(True)
    columns = decoded_columns(("offset",), with_timestamp=False)
    selection = Selection(columns, Constraints().timestamps_ms)
    reader = SplitReader(pickle.loads(pickle.dumps(places)), lost, False)
    found: list[int] = []
    for plan in plans:
        for batch in reader.read(plan, selection):
            found += batch.column("offset").to_pylist()
    lost.close("the scan")
    return found
