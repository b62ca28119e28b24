"""Building blocks of guards: checks with the authorizer, and response entries with an authorization error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from stratalog.broker.access.acls import AclOperation as Op, ResourceType
from stratalog.broker.access.guard import Asker, Guard, GuardStep, added
from stratalog.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
)

TOPIC, GROUP, CLUSTER, TXN_ID, TOKEN, USER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
TOPIC_CODE: Final = TopicAuthorizationFailedError.code
GROUP_CODE: Final = GroupAuthorizationFailedError.code
CLUSTER_CODE: Final = ClusterAuthorizationFailedError.code
TXN_ID_CODE: Final = TransactionalIdAuthorizationFailedError.code
#: (client, entry of the request) -> entry of the response with the error.
MakeEntry = Callable[[Asker, Any], Any]


def cluster_operation(operation: Op) -> Guard:
    def guard(asker: Asker, request: Any) -> GuardStep:
        if not asker.may_cluster(operation):
            raise ClusterAuthorizationFailedError("Cluster authorization failed.")
        return GuardStep(request)

    return guard


def cluster_entries(operation: Op, request_field: str, response_field: str, refuse: MakeEntry) -> Guard:
    """Guard an API that has an error code in each entry only."""

    def guard(asker: Asker, request: Any) -> GuardStep:
        if asker.may_cluster(operation):
            return GuardStep(request)
        refused = [refuse(asker, entry) for entry in getattr(request, request_field) or ()]
        return GuardStep(answer=asker.ctx.respond(**{response_field: refused}))

    return guard


def group_operation(operation: Op) -> Guard:
    def guard(asker: Asker, request: Any) -> GuardStep:
        if not asker.may(operation, GROUP, request.group_id):
            raise GroupAuthorizationFailedError("Group authorization failed.")
        return GuardStep(request)

    return guard


def transactional_id(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.WRITE, TXN_ID, request.transactional_id):
        raise TransactionalIdAuthorizationFailedError("Transactional Id authorization failed.")
    return GuardStep(request)


def each_entry(
    operation: Op,
    resource_type: ResourceType,
    request_field: str,
    response_field: str,
    refuse: MakeEntry,
    *,
    name: Callable[[Any], str] = lambda entry: str(entry.name),
) -> Guard:
    """Guard an API with a list of resources."""

    def guard(asker: Asker, request: Any) -> GuardStep:
        entries = getattr(request, request_field)
        allowed = asker.names(operation, resource_type, map(name, entries))
        return split(asker, request, request_field, response_field, lambda entry: name(entry) in allowed, refuse)

    return guard


def split(
    asker: Asker,
    request: Any,
    request_field: str,
    response_field: str,
    is_allowed: Callable[[Any], bool],
    refuse: MakeEntry,
) -> GuardStep:
    """Pass on the allowed entries; add the others to the response with an error."""
    entries = getattr(request, request_field)
    kept = tuple(entry for entry in entries if is_allowed(entry))
    if len(kept) == len(entries):
        return GuardStep(request)
    refused = [refuse(asker, entry) for entry in entries if not is_allowed(entry)]
    return GuardStep(replace(request, **{request_field: kept}), added(response_field, refused))


def refuse_partitions(
    topic_type: str,
    partition_type: str,
    *,
    code: int = TOPIC_CODE,
    partitions: str = "partitions",
    index: Callable[[Any], int] = lambda partition: int(partition.partition_index),
    index_field: str = "partition_index",
    code_field: str = "error_code",
    answered_in: str = "partitions",
    name_field: str = "name",
    **blank: Any,
) -> MakeEntry:
    def refuse(asker: Asker, topic: Any) -> Any:
        make = asker.ctx.make
        fields = {
            name_field: getattr(topic, name_field, None),
            answered_in: [
                make(partition_type, **{index_field: index(each), code_field: code}, **blank)
                for each in getattr(topic, partitions)
            ],
        }
        if getattr(topic, "topic_id", None) is not None:
            fields["topic_id"] = topic.topic_id
        return make(topic_type, **fields)

    return refuse


def by_name_or_id(asker: Asker, topic: Any) -> str | None:
    """Return the name of a topic in a request; None when it is given by an unknown id."""
    name = getattr(topic, "name", None)
    topic_id = getattr(topic, "topic_id", None)
    if topic_id is None:
        return name
    found = asker.ctx.broker.metadata.topic_by_id(topic_id)
    return None if found is None else found.name


def plain_index(partition: Any) -> int:
    return int(partition)


def readable_topics(asker: Asker, request: Any, refuse: MakeEntry) -> GuardStep:
    names = [by_name_or_id(asker, topic) for topic in request.topics]
    allowed = asker.names(Op.READ, TOPIC, (name for name in names if name is not None))
    return split(asker, request, "topics", "topics", lambda topic: is_in(asker, topic, allowed), refuse)


def is_in(asker: Asker, topic: Any, allowed: set[str]) -> bool:
    """Return whether a topic is in `allowed` or has an unknown id."""
    name = by_name_or_id(asker, topic)
    return name is None or name in allowed


def refused_result(type_name: str, name_field: str, code: int) -> MakeEntry:
    def refuse(asker: Asker, entry: Any) -> Any:
        name = entry if isinstance(entry, str) else getattr(entry, name_field)
        return asker.ctx.make(type_name, **{name_field: name}, error_code=code)

    return refuse
