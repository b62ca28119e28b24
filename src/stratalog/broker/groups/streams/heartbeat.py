"""StreamsGroupHeartbeat: a member joins, sends its changes, and gets its tasks.

The stored state is not changed here: changes are returned, and applied when they are in the log. Source:
`GroupMetadataManager.streamsGroupHeartbeat` of Kafka 4.4.0. Its refinement of targets by warm-up tasks does nothing in
that version, so there is none here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stratalog.broker.groups.modern import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    TargetEpoch,
    Timeout,
    check_instance_released,
    check_room,
    member_of_instance,
)
from stratalog.broker.groups.streams.configured_topology import (
    ConfiguredTopology,
    StatusDetail,
    StreamsStatus,
    configure,
)
from stratalog.broker.groups.streams.endpoints import EndpointPartitions, endpoint_partitions
from stratalog.broker.groups.streams.fencing import (
    check_member_epoch,
    check_tasks,
)
from stratalog.broker.groups.streams.group import StreamsGroup, TaskOffsets
from stratalog.broker.groups.streams.surroundings import StreamsSurroundings
from stratalog.broker.groups.streams.target_tasks import TaskTargets, update_targets
from stratalog.broker.groups.streams.task_reconciliation import TaskReconciliation
from stratalog.broker.groups.streams.values import (
    NO_TOPOLOGY,
    HeldTasks,
    StreamsChangeKind,
    StreamsGroupChange,
    StreamsGroupEpoch,
    StreamsMember,
    StreamsTopology,
    Tasks,
    TaskState,
    UserEndpoint,
    facts_change,
    member_removal,
    target_tasks_change,
    tasks_change,
)
from stratalog.errors import InvalidRequestError, InvalidStreamsTopologyError, UnknownServerError

_NOT_SAID = -1
#: First version whose clients know MISSING_CLIENT_TAGS.
_TAGS_FROM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """A StreamsGroupHeartbeat. None and -1 mean unchanged since the last one."""

    member_id: str
    epoch: int
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = _NOT_SAID
    topology: StreamsTopology | None = None
    active: Mapping[str, frozenset[int]] | None = None
    standby: Mapping[str, frozenset[int]] | None = None
    warmup: Mapping[str, frozenset[int]] | None = None
    process_id: str | None = None
    endpoint: UserEndpoint | None = None
    tags: tuple[tuple[str, str], ...] | None = None
    offsets: tuple[tuple[str, int, int], ...] | None = None
    end_offsets: tuple[tuple[str, int, int], ...] | None = None
    shutdown: bool = False
    client_id: str = ""
    client_host: str = ""
    version: int = 1

    @property
    def is_join(self) -> bool:
        return self.epoch == JOIN_EPOCH

    @property
    def is_leave(self) -> bool:
        return self.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH)

    @property
    def owned(self) -> Tasks | None:
        """The member's tasks, None if it does not report all of them."""
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        return Tasks(self.active, self.standby, self.warmup)


@dataclass(frozen=True, slots=True)
class StreamsReply:
    """`assigned` and `endpoints` are None if the member has them already."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    statuses: tuple[StatusDetail, ...] = ()
    assigned: HeldTasks | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None


@dataclass(slots=True)
class StreamsOutcome:
    """Records to write, the reply to send after that, and the configured topology with the topics to create."""

    reply: StreamsReply
    changes: list[StreamsGroupChange]
    configured: ConfiguredTopology


def check_streams_heartbeat(group_id: str, request: StreamsHeartbeat) -> None:
    """Raise InvalidRequestError or InvalidStreamsTopologyError for a malformed request."""
    topology = request.topology
    if topology is not None and any(part.source_topic_regex for part in topology.subtopologies):
        raise InvalidRequestError("Regular expressions for source topics are not supported yet.")
    for value, what in (
        (request.member_id, "MemberId"),
        (group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise InvalidRequestError(f"{what} can't be empty.")
    kinds = (request.active, request.standby, request.warmup)
    if request.is_join:
        _check_join(request)
    elif request.epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequestError("InstanceId can't be null.")
    elif request.epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequestError(f"MemberEpoch is {request.epoch}, but must be greater than or equal to -2.")
    if any(kind is not None for kind in kinds) and any(kind is None for kind in kinds):
        raise InvalidRequestError("If one task-type is non-null, all must be non-null.")
    if not request.is_join and topology is not None:
        raise InvalidRequestError("Topology can only be provided when (re-)joining.")


def _check_join(request: StreamsHeartbeat) -> None:
    if request.rebalance_timeout_ms == _NOT_SAID:
        raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
    for kind, what in ((request.active, "Active"), (request.standby, "Standby"), (request.warmup, "Warmup")):
        if kind is None or kind:
            raise InvalidRequestError(f"{what}Tasks must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidRequestError("Topology must be non-null when (re-)joining.")
    for part in request.topology.subtopologies:
        for topic in part.changelogs:
            if topic.partitions:
                raise InvalidStreamsTopologyError(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )


@dataclass(slots=True)
class _Step:
    """One heartbeat in progress. `bump`: the tasks have to be assigned again."""

    group: StreamsGroup
    request: StreamsHeartbeat
    around: StreamsSurroundings
    changes: list[StreamsGroupChange] = field(default_factory=list)
    statuses: list[StatusDetail] = field(default_factory=list)
    bump: bool = False

    def status(self, status: StreamsStatus, detail: str) -> None:
        self.statuses.append(StatusDetail(status, detail))


def streams_heartbeat(group: StreamsGroup, request: StreamsHeartbeat, around: StreamsSurroundings) -> StreamsOutcome:
    """Return the outcome of a heartbeat of a member that stays or joins."""
    step = _Step(group, request, around)
    if request.is_join:
        check_room(group, request.member_id, request.instance_id, around.settings.members_max)
    replaced = None
    known = group.static_member(request.instance_id)
    if known is not None and known.member_id != request.member_id:
        replaced = known
    old = _find(step)
    new = _updated(old, request)
    if new != old:
        step.changes.append(facts_change(new))
        step.bump = request.instance_id is None or not new.facts.weighs_as(old.facts)
    topology = _topology(step)
    _say_stale(step, new)
    configured, metadata_hash = _configure(step, topology)
    if configured.is_ready and configured.parts is not None:
        for tasks in (request.active, request.standby, request.warmup):
            check_tasks(configured.parts, tasks)
    _note_offsets(step)
    epoch = _raise_epoch(step, configured, metadata_hash)
    targets = _targets(step, new, epoch, configured)
    target = targets.of.get(new.member_id, Tasks())
    member = TaskReconciliation(group, new, targets.epoch, target, request.owned).next_member()
    if member != new:
        step.changes.append(tasks_change(member))
        _watch_rebalance(step, member)
    due_ms = around.now.monotonic_ms + around.settings.session_timeout_ms
    group.deadlines.set(Timeout.SESSION, member.member_id, due_ms)
    if replaced is not None:
        group.deadlines.cancel_all(replaced.member_id)
    if request.shutdown and group.shutdown_by is None:
        group.shutdown_by = request.member_id
    return StreamsOutcome(_reply(step, old, member, replaced, configured), step.changes, configured)


def _find(step: _Step) -> StreamsMember:
    """Return the member before the request; a new one when it joins."""
    group, request = step.group, step.request
    if request.instance_id is None:
        known = group.members.get(request.member_id)
        joins = known is None and request.is_join
        member = StreamsMember(request.member_id) if joins else group.member(request.member_id)
        check_member_epoch(member, request.epoch, request.active, request.standby, request.warmup)
        return member
    if not request.is_join:
        member = member_of_instance(group, request.member_id, request.instance_id)
        check_member_epoch(member, request.epoch, request.active, request.standby, request.warmup)
        return member
    before = group.static_member(request.instance_id)
    if before is None:
        return group.members.get(request.member_id) or StreamsMember(request.member_id)
    check_instance_released(before, request.member_id, request.instance_id)
    current = replace(before.current, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    member = replace(before, member_id=request.member_id, current=current)
    step.changes += member_removal(before.member_id)
    step.changes.append(facts_change(member))
    step.changes.append(target_tasks_change(member.member_id, group.targets.get(before.member_id, Tasks())))
    step.changes.append(tasks_change(member))
    return member


def _updated(old: StreamsMember, request: StreamsHeartbeat) -> StreamsMember:
    facts = old.facts
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        old,
        facts=replace(
            facts,
            instance_id=facts.instance_id if request.instance_id is None else request.instance_id,
            rack_id=facts.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=facts.rebalance_timeout_ms if timeout_ms == _NOT_SAID else timeout_ms,
            topology_epoch=facts.topology_epoch if request.topology is None else request.topology.epoch,
            client_id=request.client_id,
            client_host=request.client_host,
            process_id=facts.process_id if request.process_id is None else request.process_id,
            tags=facts.tags if request.tags is None else _tags(request.tags),
            endpoint=request.endpoint if request.is_join or request.endpoint is not None else facts.endpoint,
        ),
    )


def _tags(said: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    tags = dict(said)
    if len(tags) < len(said):
        raise UnknownServerError
    return tags


def _topology(step: _Step) -> StreamsTopology:
    """Return the group's topology, which is that of its first member."""
    known, said = step.group.topology, step.request.topology
    if said is not None and (said.epoch < 0 or len(said.by_id()) < len(said.subtopologies)):
        raise UnknownServerError
    if known is None:
        if said is None:
            raise UnknownServerError
        step.changes.append(StreamsGroupChange(StreamsChangeKind.TOPOLOGY, value=said))
        return said
    if said is not None and said.epoch >= known.epoch and not known.is_same(said):
        raise InvalidRequestError("Topology updates are not supported yet.")
    return known


def _say_stale(step: _Step, member: StreamsMember) -> None:
    topology = step.group.topology
    if topology is not None and member.facts.topology_epoch < topology.epoch:
        step.status(
            StreamsStatus.STALE_TOPOLOGY,
            f"The member's topology epoch {member.facts.topology_epoch} is behind the group's topology epoch "
            f"{topology.epoch}.",
        )


def _configure(step: _Step, topology: StreamsTopology) -> tuple[ConfiguredTopology, int]:
    """Return the topology configured with the current topics, and the hash of these."""
    group, around = step.group, step.around
    version = around.topics.topics_version
    is_known = group.seen_topics_version == version or around.is_creating
    if group.topology is not None and group.configured is not None and is_known:
        return group.configured, group.metadata.metadata_hash
    metadata_hash = around.hashes.of_group(topology.required_topics())
    is_other = metadata_hash != group.metadata.metadata_hash
    step.bump |= is_other
    if group.topology is None or group.configured is None or is_other:
        group.configured = configure(topology, around.partition_count)
    if not is_other:  # else the epoch will be incremented, and the hash must be in the log first
        group.seen_topics_version = version
    return group.configured, metadata_hash


def _note_offsets(step: _Step) -> None:
    request, group = step.request, step.group
    if request.offsets is not None:
        group.offsets[request.member_id] = _by_task(request.offsets)
    if request.end_offsets is not None:
        group.end_offsets[request.member_id] = _by_task(request.end_offsets)


def _by_task(said: tuple[tuple[str, int, int], ...]) -> TaskOffsets:
    offsets: dict[str, dict[int, int]] = {}
    for subtopology, number, offset in said:
        if number in offsets.setdefault(subtopology, {}):
            raise InvalidRequestError(
                f"Task offsets contain a duplicate entry for subtopology {subtopology} and partition {number}."
            )
        offsets[subtopology][number] = offset
    return offsets


def _raise_epoch(step: _Step, configured: ConfiguredTopology, metadata_hash: int) -> int:
    """Return the group's epoch, which is incremented when anything has changed that its tasks depend on."""
    metadata = step.group.metadata
    validated = configured.epoch if configured.is_ready else NO_TOPOLOGY
    configs = step.around.settings.assignment_configs()
    if (
        not step.bump
        and validated == metadata.validated_topology
        and dict(configs) == dict(metadata.assignment_configs or ())
    ):
        return metadata.epoch
    raised = replace(
        metadata,
        epoch=metadata.epoch + 1,
        metadata_hash=metadata_hash,
        validated_topology=validated,
        assignment_configs=configs,
    )
    step.changes.append(StreamsGroupChange(StreamsChangeKind.GROUP, value=raised))
    return raised.epoch


def _targets(step: _Step, member: StreamsMember, epoch: int, configured: ConfiguredTopology) -> TaskTargets:
    """Return the current targets, computed again if the group's epoch is ahead of them and it is allowed."""
    group, around = step.group, step.around
    if around.is_delayed:
        step.status(
            StreamsStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
        )
        return TaskTargets(group.target_epoch.epoch, {})
    targets, is_early = update_targets(group, member, epoch, configured, around, step.changes)
    if is_early:
        step.status(StreamsStatus.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
    return targets


def _watch_rebalance(step: _Step, member: StreamsMember) -> None:
    """Set a deadline for a member that has to revoke tasks."""
    deadlines = step.group.deadlines
    if member.current.state is TaskState.UNREVOKED_TASKS:
        due_ms = step.around.now.monotonic_ms + member.facts.rebalance_timeout_ms
        deadlines.set(Timeout.REBALANCE, member.member_id, due_ms, member.epoch)
    else:
        deadlines.cancel(Timeout.REBALANCE, member.member_id)


def _reply(
    step: _Step,
    old: StreamsMember,
    member: StreamsMember,
    replaced: StreamsMember | None,
    configured: ConfiguredTopology,
) -> StreamsReply:
    group, request, settings = step.group, step.request, step.around.settings
    has_changed = old.current.assigned != member.current.assigned
    endpoint = member.facts.endpoint
    if endpoint != old.facts.endpoint or (has_changed and endpoint is not None):
        group.endpoint_epoch += 1
    endpoints = None
    if group.endpoint_epoch != request.endpoint_epoch:
        gone = {member.member_id, *(() if replaced is None else (replaced.member_id,))}
        others = [each for member_id, each in group.members.items() if member_id not in gone]
        endpoints = endpoint_partitions([*others, member], configured, step.around)
    if configured.problem is not None:
        step.statuses.append(configured.problem)
    if group.shutdown_by is not None:
        step.status(
            StreamsStatus.SHUTDOWN_APPLICATION,
            f"Streams group member {group.shutdown_by} encountered a fatal error and requested a shutdown for the "
            "entire application.",
        )
    missing_tags = [tag for tag in settings.rack_aware_tags if tag not in member.facts.tags]
    if missing_tags and request.version >= _TAGS_FROM:
        step.status(
            StreamsStatus.MISSING_CLIENT_TAGS,
            f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing_tags)}]. Configure "
            "them via 'client.tag.<tagKey>' in your Streams config.",
        )
    return StreamsReply(
        member_id=member.member_id,
        epoch=member.epoch,
        interval_ms=settings.heartbeat_interval_ms,
        task_offset_interval_ms=settings.task_offset_interval_ms,
        acceptable_recovery_lag=settings.acceptable_recovery_lag,
        statuses=tuple(step.statuses),
        assigned=member.current.assigned if request.is_join or has_changed else None,
        endpoint_epoch=group.endpoint_epoch,
        endpoints=endpoints,
    )


# --- leaving ----------------------------------------------------------------------------------------------------------


def leave_streams_for_a_while(member: StreamsMember) -> list[StreamsGroupChange]:
    """Return the change for a static member that leaves: its tasks stay with its instance id."""
    assigned = member.current.assigned
    active = {part: dict.fromkeys(numbers, 0) for part, numbers in assigned.active.items()}
    current = replace(
        member.current, epoch=LEAVE_STATIC_EPOCH, assigned=replace(assigned, active=active), revoking=HeldTasks()
    )
    return [tasks_change(replace(member, current=current))]


def remove_streams_member(group: StreamsGroup, member: StreamsMember) -> list[StreamsGroupChange]:
    """Return the changes that remove a member; the epoch is incremented, so that others get its tasks."""
    changes = member_removal(member.member_id)
    metadata: StreamsGroupEpoch = replace(
        group.metadata, epoch=group.epoch + 1, assignment_configs=group.metadata.assignment_configs or ()
    )
    changes.append(StreamsGroupChange(StreamsChangeKind.GROUP, value=metadata))
    if len(group.members) == 1:
        changes.append(StreamsGroupChange(StreamsChangeKind.TARGET_EPOCH, value=TargetEpoch(metadata.epoch)))
    return changes
