"""Checks of member ids, epochs and tasks of streams groups, with Kafka's errors."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stratalog.broker.groups.modern import JOIN_EPOCH
from stratalog.broker.groups.streams.configured_topology import ConfiguredSubtopology
from stratalog.broker.groups.streams.values import StreamsMember
from stratalog.errors import (
    FencedMemberEpochError,
    InvalidRequestError,
)

#: Tasks that a client reports; None: not reported.
_Owned = Mapping[str, Collection[int]] | None


def check_member_epoch(member: StreamsMember, received: int, active: _Owned, standby: _Owned, warmup: _Owned) -> None:
    """Raise FencedMemberEpochError for an invalid epoch.

    The previous one is valid if the response with the current one may have been lost: the member then only has assigned
    tasks.
    """
    if received in (JOIN_EPOCH, member.epoch):
        return
    assigned = member.current.assigned
    is_lost_answer = (
        received < member.epoch
        and received == member.current.previous_epoch
        and _owns_only(active, assigned.active)
        and _owns_only(standby, assigned.standby)
        and _owns_only(warmup, assigned.warmup)
    )
    if not is_lost_answer:
        which = "greater" if received > member.epoch else "smaller"
        raise FencedMemberEpochError(
            f"The streams group member has a {which} member epoch ({received}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin."
        )


def _owns_only(owned: _Owned, assigned: Mapping[str, Collection[int]]) -> bool:
    if owned is None:
        return False
    return all(
        subtopology in assigned and all(number in assigned[subtopology] for number in numbers)
        for subtopology, numbers in owned.items()
    )


def check_tasks(parts: Mapping[str, ConfiguredSubtopology], tasks: _Owned) -> None:
    """Raise InvalidRequestError for tasks that do not exist."""
    for subtopology, numbers in (tasks or {}).items():
        part = parts.get(subtopology)
        if part is None:
            raise InvalidRequestError(f"Subtopology {subtopology} does not exist in the topology.")
        for number in numbers:
            if not 0 <= number < part.task_count:
                raise InvalidRequestError(
                    f"Task {number} for subtopology {subtopology} is invalid. Number of tasks for this subtopology: "
                    f"{part.task_count}"
                )
