"""Options shared by several commands."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from stratalog.errors import UsageError

BOOTSTRAP_VARIABLE = "STRATALOG_BOOTSTRAP_SERVER"
SCHEMA_REGISTRY_VARIABLE = "STRATALOG_SCHEMA_REGISTRY"
COMMAND_CONFIG_VARIABLE = "STRATALOG_COMMAND_CONFIG"

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="H:P[,..]",
        envvar=BOOTSTRAP_VARIABLE,
        help="A broker of the cluster, HOST:PORT.",
    ),
]
#: For commands that have other sources too; see `bootstrap_from_environment`.
OptionalBootstrapServer = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="H:P[,..]",
        help=f"A broker of the cluster, as HOST:PORT. Without any source, {BOOTSTRAP_VARIABLE} is used.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar=COMMAND_CONFIG_VARIABLE,
        help="Kafka's client properties: security.protocol, ssl.*, sasl.*, timeouts.",
    ),
]
SchemaRegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL",
        envvar=SCHEMA_REGISTRY_VARIABLE,
        help="A schema registry, for keys and values in Avro, JSON Schema and Protobuf.",
    ),
]
DataDirs = Annotated[
    list[Path] | None,
    typer.Option("--data-dir", "--path", metavar="DIR", help="A data directory of a broker."),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="URL",
        help="The bucket of the remote tier: s3://bucket/prefix, gs://, az://, file:///directory or a directory.",
    ),
]
RemoteOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--remote-option",
        "--store-option",
        metavar="KEY=VALUE",
        help="An option of the object store, such as endpoint, region or allow_http. Other values come from "
        "the environment (AWS_*).",
    ),
]
Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="T", help="Only this topic.")]
TopicIds = Annotated[
    list[str] | None,
    typer.Option(
        "--topic-id",
        metavar="ID",
        help="Only the topic with this id, if several topics have the same name.",
    ),
]
Grace = Annotated[
    str,
    typer.Option(
        "--grace", metavar="SPAN", help="Ignore anything younger, which may be in progress: 90s, 30m, 24h, 7d."
    ),
]
WhatIf = Annotated[
    list[str] | None, typer.Option("--what-if", metavar="KEY=VALUE", help="Assume that topics have this setting.")
]
AssumedTime = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Assume that it is this time: 2026-01-31T12:00:00Z or milliseconds."),
]
CheckInterval = Annotated[
    str, typer.Option("--check-interval", metavar="SPAN", help="log.retention.check.interval.ms of the broker.")
]
RestoreTime = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Restore the remote tier as of this time. Segments that were copied later are left out.",
    ),
]
RestoredConfigs = Annotated[
    list[str] | None,
    typer.Option("--topic-config", metavar="KEY=VALUE", help="Set this on every topic, such as retention.ms=-1."),
]
PlanOnly = Annotated[bool, typer.Option("--dry-run", help="Report the changes without making them.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print JSON lines, one object per line.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only validate the request; change nothing.")]


def bootstrap_from_environment() -> str | None:
    """Return the broker that the environment names, for a command line that names no source."""
    return os.environ.get(BOOTSTRAP_VARIABLE) or None


def key_values(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Return KEY=VALUE texts as a dictionary. Raises UsageError, which names the option, for anything else."""
    found = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise UsageError(f"{option} {text}: expected KEY=VALUE")
        found[key] = value
    return found
