"""`stratalog groups delete-offsets`: delete a group's offsets of topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Final

import typer

from stratalog.cli.completion import complete_groups
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.groups.queries import SHARE, named_groups, require_offsets
from stratalog.cli.groups.reset import chosen_partitions
from stratalog.cli.options import Json
from stratalog.cli.out import on_terminal, print_json
from stratalog.cli.topic_lookup import named_topics
from stratalog.errors import StratalogError, UsageError
from stratalog.util import TableColumn, print_table
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, Coordinators, RefusedError, check

_NON_EMPTY_GROUP: Final = 68
_SUBSCRIBED: Final = 86
_HINTS: Final = {
    _NON_EMPTY_GROUP: "it has members; stop them first",
    _SUBSCRIBED: "the group is subscribed to it; stop its members first",
}


@dataclass(frozen=True, slots=True)
class _Deletion:
    """Offsets of a topic in a group, of one partition or of all. `error` is None if they were deleted."""

    topic: str
    partition: int | None
    error: StratalogError | None


def delete_offsets(
    group: Annotated[
        str,
        typer.Argument(metavar="GROUP", show_default=False, help="The group.", autocompletion=complete_groups),
    ],
    servers: ClusterOptions,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T[:0,1]", help="The topic, or these partitions of it. May be repeated."),
    ] = None,
    json_: Json = False,
) -> int:
    """Delete offsets of a group. Its consumers then start according to auto.offset.reset.

    A classic or consumer group must not be subscribed to the topic. A share group must have no members, and its offsets
    are deleted for whole topics.

    Exit code 1: some could not be deleted; the others were.

    \b
    Examples:
      stratalog groups delete-offsets billing --topic orders -b h:9092
      stratalog groups delete-offsets billing --topic orders:0,1 -b h:9092
    """
    if not topic:
        raise UsageError("no topic given: stratalog groups delete-offsets GROUP --topic T --bootstrap-server H:P")
    with servers.open() as cluster:
        (known,) = named_groups(cluster, [group])
        require_offsets(known)
        delete = _delete_of_share_group if known.type == SHARE else _delete_of_consumers
        done = sorted(delete(cluster, group, topic), key=lambda each: (each.topic, each.partition or 0))
    deleted = [each for each in done if each.error is None]
    if json_:
        print_json({"group": group, "deleted": [_as_json(each) for each in deleted]})
    elif deleted:
        columns = (TableColumn("topic"), TableColumn("partition", is_number=True))
        rows = [(each.topic, "all" if each.partition is None else each.partition) for each in deleted]
        print_table(columns, rows, f"deleted of {group}" if on_terminal() else None, is_terminal=on_terminal())
    for each in done:
        if each.error is not None:
            raise each.error
    return 0


def _as_json(deletion: _Deletion) -> dict[str, Any]:
    if deletion.partition is None:
        return {"topic": deletion.topic}
    return {"topic": deletion.topic, "partition": deletion.partition}


def _delete_of_consumers(cluster: Cluster, group: str, wanted: Sequence[str]) -> Iterator[_Deletion]:
    topics = [
        {"name": name, "partitions": [{"partition_index": number} for _, number in each]}
        for name, each in groupby(chosen_partitions(cluster, wanted), key=lambda key: key[0])
    ]
    answer = Coordinators(cluster).of_group(group).call(ApiKey.OFFSET_DELETE, (0, 0), group_id=group, topics=topics)
    check(answer.error_code, _HINTS.get(int(answer.error_code)), f"Group {group}")
    for topic in answer.topics:
        for each in topic.partitions:
            what = f"Group {group}, {topic.name}-{each.partition_index}"
            yield _Deletion(topic.name, each.partition_index, _error(each.error_code, None, what))


def _delete_of_share_group(cluster: Cluster, group: str, wanted: Sequence[str]) -> Iterator[_Deletion]:
    for text in wanted:
        if ":" in text:
            raise UsageError(f"--topic {text}: group {group} is a share group; its offsets go by topic, without :0,1")
    topics = [{"topic_name": name} for name in named_topics(cluster, list(wanted))]
    coordinator = Coordinators(cluster).of_group(group)
    answer = coordinator.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, (0, 0), group_id=group, topics=topics)
    check(answer.error_code, _HINTS.get(int(answer.error_code), answer.error_message), f"Group {group}")
    for topic in answer.responses:
        what = f"Group {group}, {topic.topic_name}"
        yield _Deletion(topic.topic_name, None, _error(topic.error_code, topic.error_message, what))


def _error(code: Any, message: str | None, what: str) -> StratalogError | None:
    try:
        check(code, _HINTS.get(int(code), message), what)
    except RefusedError as error:
        return error
    return None
