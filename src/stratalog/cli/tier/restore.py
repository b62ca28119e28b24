"""`stratalog tier restore`: topics or a whole cluster back from the bucket alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer

from stratalog.broker.metadata import STORE_FILE, MetadataStore, parse_document
from stratalog.cli.options import JsonLines, PlanOnly, RestoredConfigs, RestoreTime, key_values
from stratalog.cli.restored_topics import add_topics, level_for, require_not_served
from stratalog.cli.tier.owner import identity_of
from stratalog.cli.tier.restore_output import expiring_notes, print_hint, print_plan
from stratalog.cli.tier.store import BucketOptions
from stratalog.cli.tier.times import time_ms
from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine.tiering import PARTITIONS_KEY, metadata_topic_configs
from stratalog.errors import DataDirError, InvalidConfigError, RemoteResourceNotFoundError, UsageError
from stratalog.inspect import DataDirSet
from stratalog.jobs import terminal_progress
from stratalog.jobs.restore import (
    METADATA_TOPIC,
    KnownTopic,
    RestoredTopic,
    RestorePlan,
    Written,
    check_target,
    plan_restore,
    write_restore,
)
from stratalog.remote.ownership import OwnershipFile, made_by_brokers, read_owner, take_over
from stratalog.remote.storage import METADATA_COPY, ObjectStore
from stratalog.util import SYSTEM_CLOCK, random_uuid, uuid_to_base64


def restore(
    bucket: BucketOptions,
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", metavar="DIR", help="A new or empty directory for the topics."),
    ],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "--topics", metavar="T", help="Only this topic. Default: all topics."),
    ] = None,
    at: RestoreTime = None,
    topic_config: RestoredConfigs = None,
    metadata_only: Annotated[
        bool,
        typer.Option(
            "--metadata-only",
            help="Restore only the metadata of the remote tier, in a directory that has topics.",
        ),
    ] = False,
    metadata_partitions: Annotated[
        int, typer.Option("--metadata-partitions", min=1, help=f"The broker's {PARTITIONS_KEY}.")
    ] = BrokerConfig.from_properties({})[PARTITIONS_KEY],
    take_over_bucket: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Make this directory's cluster the owner of the bucket, so that it copies and deletes there. "
            "Default: only read a bucket that another cluster owns.",
        ),
    ] = False,
    dry_run: PlanOnly = False,
    as_json: JsonLines = False,
) -> int:
    """Restore topics from a bucket into a data directory. Records stay in the bucket and are read from there.

    A bucket that another cluster owns is only read: nothing is copied to it or deleted from it, whatever happens to
    the new topics. With --take-over the bucket belongs to this directory's cluster, and brokers of the other cluster
    are locked out. Stop them first.

    Exit code 0: everything was restored.
    Exit code 1: something that is named could not be restored; the rest was.
    Exit code 2: nothing was done.

    \b
    Examples:
      stratalog tier restore s3://bucket/tiered --data-dir /var/lib/stratalog --dry-run
      stratalog tier restore s3://bucket/tiered --data-dir D --topic orders --topic users
      stratalog tier restore s3://bucket/tiered --data-dir /var/lib/stratalog --take-over
      stratalog tier restore s3://bucket/tiered --data-dir /var/lib/stratalog --metadata-only
    """
    url = bucket.given_url
    require_not_served(data_dir)
    check_target(data_dir, metadata_only=metadata_only)
    overrides = key_values("--topic-config", topic_config)
    names = None if topic is None else [name for text in topic for name in text.split(",") if name]
    at_ms = None if at is None else time_ms(at, "--at")
    store = bucket.open()
    with _existing(data_dir, metadata_only) as cluster:
        known = None if cluster is None else _known(cluster)
        cluster_id = uuid_to_base64(random_uuid()) if cluster is None else cluster.cluster_id
        planned = partial(
            plan_restore,
            store,
            names,
            at_ms=at_ms,
            existing=known,
            local=DataDirSet([data_dir]) if metadata_only else None,
            progress=terminal_progress(),
        )
        plan = planned()
        if take_over_bucket and not dry_run:
            take_over(store.inner, cluster_id, node_id=identity_of(data_dir)[1], reason="taken over by a restore")
            plan = planned()  # with what the owner until now has copied or deleted in the meantime
        attached = _attached(
            store.inner, cluster_id, is_new=cluster is None, takes_over=take_over_bucket, dry_run=dry_run
        )
        if at_ms is None:
            plan = _with_newer_configs(plan, store.inner)
        plan = _with_configs(plan, overrides)
        written = Written(())
        if not dry_run:
            metadata_topic = None if known is None else known.get(METADATA_TOPIC)
            written = write_restore(
                plan,
                data_dir,
                partial(_register, data_dir, cluster, cluster_id, attached.is_read_only, metadata_partitions),
                metadata_only=metadata_only,
                metadata_topic_id=None if metadata_topic is None else metadata_topic.topic_id,
                metadata_partitions=(metadata_partitions if metadata_topic is None else metadata_topic.partition_count),
            )
    expiring = () if metadata_only else expiring_notes(plan, SYSTEM_CLOCK.now_ms(), is_read_only=attached.is_read_only)
    notes = (*plan.notes, *written.notes, *expiring, *attached.notes)
    print_plan(plan, notes, as_json=as_json, dry_run=dry_run)
    if not (dry_run or metadata_only or as_json):
        print_hint(url, data_dir)
    return 1 if plan.problems else 0


@dataclass(frozen=True, slots=True)
class _Attached:
    """The relation of the new directory to the bucket, and a remark about it. None leaves a directory as it is."""

    is_read_only: bool | None
    notes: tuple[str, ...] = ()


def _attached(store: ObjectStore, cluster_id: str, *, is_new: bool, takes_over: bool, dry_run: bool) -> _Attached:
    if takes_over:
        note = (
            f"the bucket {'would be' if dry_run else 'is'} this cluster's; no other one copies there or deletes there"
        )
        return _Attached(False, (note,))
    owner = read_owner(store)
    if owner is not None and owner.cluster_id not in (None, cluster_id):
        whose = f"the bucket belongs to cluster {owner.cluster_id}"
    elif owner is None and is_new and made_by_brokers(store):
        whose = "brokers copied to the bucket, and it has no owner"
    else:
        return _Attached(None)
    return _Attached(
        True if is_new else None,
        (f"{whose}: this directory only reads it, nothing is copied there or deleted from there (--take-over)",),
    )


@contextmanager
def _existing(data_dir: Path, metadata_only: bool) -> Iterator[MetadataStore | None]:
    """Yield the store of a directory that has one and is to keep it."""
    if not metadata_only:
        yield None
        return
    if not (data_dir / STORE_FILE).is_file():
        raise DataDirError(f"{data_dir} has no {STORE_FILE}, so its topics are unknown; restore into a new directory")
    with closing(MetadataStore.open(data_dir)) as cluster:
        yield cluster


def _known(cluster: MetadataStore) -> dict[str, KnownTopic]:
    return {topic.name: KnownTopic(topic.topic_id, topic.partition_count) for topic in cluster.topics()}


def _register(
    data_dir: Path,
    cluster: MetadataStore | None,
    cluster_id: str,
    is_read_only: bool | None,
    metadata_partitions: int,
    plan: RestorePlan,
    metadata_topic_id: UUID,
) -> None:
    """Register the topics and the broker's rights to the bucket. Topics that the broker has stay as they are."""
    store = cluster or MetadataStore.open(data_dir, cluster_id=cluster_id, metadata_version=level_for(plan.topics))
    try:
        if is_read_only is not None:
            OwnershipFile(data_dir).set_read_only(is_read_only)
        configs = metadata_topic_configs(BrokerConfig.from_properties({}))
        metadata_topic = RestoredTopic(METADATA_TOPIC, metadata_topic_id, metadata_partitions, configs)
        add_topics(store, [metadata_topic, *plan.topics])
        if cluster is None:
            store.reserve_producer_ids(plan.producer_id_max)
    finally:
        if cluster is None:
            store.close()


def _with_newer_configs(plan: RestorePlan, store: ObjectStore) -> RestorePlan:
    """Return the plan with the settings that the broker copied to the bucket; manifests have older ones.

    A copy that does not exist or cannot be read changes nothing; the latter is a note.
    """
    try:
        document = parse_document(bytes(store.get(METADATA_COPY)), METADATA_COPY)
    except RemoteResourceNotFoundError:
        return plan
    except UsageError as error:
        note = f"the settings of topics are those of their last copied segments: {error}"
        return RestorePlan(plan.topics, plan.partitions, plan.judged, plan.problems, (*plan.notes, note))
    known = {topic["id"]: topic["configs"] for topic in document["topics"]}
    topics = tuple(
        RestoredTopic(
            topic.name,
            topic.topic_id,
            topic.partition_count,
            known.get(uuid_to_base64(topic.topic_id), topic.configs),
        )
        for topic in plan.topics
    )
    return RestorePlan(topics, plan.partitions, plan.judged, plan.problems, plan.notes)


def _with_configs(plan: RestorePlan, overrides: Mapping[str, str]) -> RestorePlan:
    """Return the plan with these settings for every topic. Invalid configurations are left out."""
    topics, notes = [], list(plan.notes)
    for topic in plan.topics:
        configs = {**topic.configs, **overrides}
        try:
            LogConfig.from_properties(configs, None, use_large_index_format=True)
        except InvalidConfigError as error:
            if overrides:
                raise
            configs = {"remote.storage.enable": "true", "retention.ms": "-1", "retention.bytes": "-1"}
            notes.append(f"{topic.name}: its configuration is not valid here ({error}); it keeps everything instead")
        topics.append(RestoredTopic(topic.name, topic.topic_id, topic.partition_count, configs))
    return RestorePlan(tuple(topics), plan.partitions, plan.judged, plan.problems, tuple(notes))
