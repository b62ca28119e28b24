"""`stratalog tier status`: why segments are still local, or not yet remote, partition by partition."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from stratalog.broker import tier_status_field
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.log_dirs import describe_log_dirs
from stratalog.cli.missing import require_topics
from stratalog.cli.options import CommandConfig, Json, OptionalBootstrapServer, Topics, bootstrap_from_environment
from stratalog.cli.out import on_terminal, print_json
from stratalog.cli.tier.times import time_text
from stratalog.cli.web_address import WebAddress, login_of_file
from stratalog.errors import UsageError
from stratalog.jobs import size_text
from stratalog.util import TableColumn, print_table
from stratalog.wire.client import UnreachableError

EXIT_FAILING = 1

_COLUMNS = (
    TableColumn("partition"),
    TableColumn("state"),
    TableColumn("local", 3, is_number=True),
    TableColumn("remote", 3, is_number=True),
    TableColumn("log start", 5, is_number=True),
    TableColumn("local start", 4, is_number=True),
    TableColumn("remote up to", 4, is_number=True),
    TableColumn("end", 4, is_number=True),
    TableColumn("to upload", 1, is_number=True),
    TableColumn("segments to upload", 2, is_number=True),
    TableColumn("why", 6),
)


def status(
    bootstrap_server: OptionalBootstrapServer = None,
    command_config: CommandConfig = None,
    web: Annotated[str | None, typer.Option("--web", metavar="H:P", help="Ask the web address of a broker.")] = None,
    data_dir: Annotated[
        list[Path] | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            help="Read the files of a broker that is not running.",
        ),
    ] = None,
    topic: Topics = None,
    as_json: Json = False,
) -> int:
    """Show why segments are still local, or not yet remote.

    Exit code 1: something is failing.

    \b
    Examples:
      stratalog tier status --bootstrap-server h:9092
      stratalog tier status --web 127.0.0.1:8080 --topic orders --json
      stratalog tier status --data-dir /var/lib/stratalog
    """
    if bootstrap_server is None and web is None and data_dir is None:
        bootstrap_server = bootstrap_from_environment()
    if sum(source is not None for source in (bootstrap_server, web, data_dir)) != 1:
        raise UsageError("tier status: give one of --bootstrap-server, --web and --data-dir")
    if bootstrap_server is not None:
        partitions = _from_cluster(bootstrap_server, command_config)
    elif web is not None:
        partitions = _from_web(web, command_config)
    else:
        from stratalog.cli.tier.status_offline import from_data_dirs  # loads the broker, which other sources do without

        partitions = from_data_dirs(data_dir or [])
    known = {str(partition["topic"]) for partition in partitions}
    require_topics(topic, lambda: known, "tiered topics")
    if topic:
        partitions = [partition for partition in partitions if partition["topic"] in topic]
    failing = sum(bool(partition["isFailing"]) for partition in partitions)
    if as_json:
        print_json({"failing": failing, "partitions": partitions})
    else:
        _print(partitions, failing)
    return EXIT_FAILING if failing else 0


def _from_cluster(bootstrap_server: str, command_config: Path | None) -> list[dict[str, Any]]:
    partitions = []
    with ClusterOptions(bootstrap_server=bootstrap_server, command_config=command_config).open() as cluster:
        for broker in sorted(cluster.nodes()):
            _, fields = describe_log_dirs(broker, cluster.node(broker), None)
            answer = fields.get(tier_status_field.TAG)
            if answer is not None:
                partitions += _partitions(answer, f"broker {broker}")
    return partitions


def _from_web(address: str, command_config: Path | None) -> list[dict[str, Any]]:
    web = WebAddress(address, login_of_file(command_config))
    return _checked(web.get("/api/tier-status"), f"{web.url}/api/tier-status")


def _partitions(data: bytes, whose: str) -> list[dict[str, Any]]:
    try:
        return _checked(json.loads(data), whose)
    except ValueError:
        raise UnreachableError(f"{whose} does not answer like a stratalog broker") from None


def _checked(answer: Any, whose: str) -> list[dict[str, Any]]:
    try:
        partitions = answer["partitions"]
        if all({"topic", "partition", "isFailing", "reason"} <= partition.keys() for partition in partitions):
            return list(partitions)
    except (KeyError, TypeError, AttributeError):
        pass
    raise UnreachableError(f"{whose} does not answer like a stratalog broker")


def _print(partitions: list[dict[str, Any]], failing: int) -> None:
    if on_terminal():
        print_table(_COLUMNS, [_row(partition, size_text) for partition in partitions])
        for partition in partitions:
            for line in _failures(partition):
                print(f"{partition['topic']}-{partition['partition']}: {line}")
    else:
        for partition in partitions:
            print("\t".join((*_row(partition, str), "; ".join(_failures(partition)))))
    if failing:
        print(f"{failing} of {len(partitions)} tiered partitions are failing")
    elif on_terminal():
        print(f"{len(partitions)} tiered partitions, none failing")


def _row(partition: dict[str, Any], size: Callable[[int], str]) -> tuple[str, ...]:
    return (
        f"{partition['topic']}-{partition['partition']}",
        "failing" if partition["isFailing"] else partition["reason"],
        size(partition["localBytes"]),
        size(partition["remoteBytes"]),
        str(partition["logStartOffset"]),
        str(partition["localLogStartOffset"]),
        str(partition["highestRemoteOffset"]),
        str(partition["logEndOffset"]),
        size(partition["lagBytes"]),
        str(partition["lagSegments"]),
        partition["text"],
    )


def _failures(partition: dict[str, Any]) -> list[str]:
    """Each task that fails, in one line; without its error where the reason of the partition has that already."""
    lines = []
    for failure in partition["failures"]:
        times = "once" if failure["times"] == 1 else f"{failure['times']} times"
        error = "" if failure["error"] in partition["text"] else f": {' '.join(failure['error'].split())}"
        lines.append(f"{failure['task']} failed {times} since {time_text(failure['sinceMs'])}Z{error}")
    return lines
