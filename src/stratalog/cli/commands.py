"""The table of commands, and how one is loaded: only when it runs, so that `stratalog --help` stays quick.

A new command is one line in `COMMANDS` and one module. The target is a function with typer's annotations, whose
docstring is the help and ends with an example; or a `typer.Typer` for a command that has sub-commands.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """`target` is "module:attribute"; `summary` is the line in `stratalog --help`."""

    name: str
    target: str
    summary: str


COMMANDS = (
    CommandSpec(
        "demo",
        "stratalog.cli.demo:demo",
        "The main job, end to end, on real input, with every answer checked.",
    ),
    CommandSpec("serve", "stratalog.cli.serve:serve", "Serve a data directory to Kafka clients."),
    CommandSpec("topics", "stratalog.cli.topics:app", "Create, list, describe, alter and delete topics."),
    CommandSpec(
        "configs", "stratalog.cli.configs:app", "What is set on topics and brokers, and changing it."
    ),
    CommandSpec("features", "stratalog.cli.features:app", "Levels of what a cluster may write."),
    CommandSpec(
        "log-dirs", "stratalog.cli.log_dirs:app", "What lies in each log directory and in the remote tier."
    ),
    CommandSpec(
        "index", "stratalog.cli.index:app", "Inspect, verify, rebuild and convert offset and time indexes."
    ),
    CommandSpec(
        "dump", "stratalog.cli.dump:dump", "Print segment, index and checkpoint files as kafka-dump-log does."
    ),
    CommandSpec(
        "fsck", "stratalog.cli.fsck:fsck", "Check log directories offline; repair what follows from the log."
    ),
    CommandSpec("retention", "stratalog.cli.retention:app", "Why records are still there, and when they go."),
    CommandSpec(
        "spark", "stratalog.cli.spark.command:app", "Jobs over data directories and buckets, on Spark."
    ),
    CommandSpec("tier", "stratalog.cli.tier.command:app", "List, check, repair and restore tiered topics."),
)


class LazyCommand(TyperCommand):
    """Stands in the help listing for a command whose module is imported when the command is used."""

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(name=spec.name, help=spec.summary, callback=None)
        self._target = spec.target

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load(self._target).make_context(info_name, args, parent, **extra)


def load(target: str) -> Any:
    """Import "module:attribute" and give the command that it defines."""
    module, _, attribute = target.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False)
        app.command()(found)
        found = app
    return get_command(found)
