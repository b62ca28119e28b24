"""The tree of commands. A command's module is imported only when the command is used, so that help stays quick.

A new command is one entry in `COMMANDS` and one function with typer's annotations. Its docstring is the help and ends
with an example. Heavy libraries are imported when the work begins: `tests/contracts/test_command_lines.py` checks that
no `--help` loads numpy, numba, pyarrow, pyspark or obstore.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import typer
from typer.main import get_command

from stratalog.cli.help import HelpfulCommand, HelpfulGroup
from stratalog.cli.option_groups import flattened

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command: `target` is ".module:function" in `stratalog.cli`, `summary` the line in the listing of its group."""

    name: str
    target: str
    summary: str


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A command that has sub-commands. `examples` are shown in its help, without the leading "stratalog"."""

    name: str
    summary: str
    examples: tuple[str, ...]
    commands: tuple[CommandSpec | GroupSpec, ...]


COMMANDS: tuple[CommandSpec | GroupSpec, ...] = (
    CommandSpec("demo", ".demo:demo", "Run the main job end to end on real data and check every answer."),
    CommandSpec("serve", ".serve:serve", "Serve a data directory to Kafka clients."),
    CommandSpec("top", ".top.command:top", "Show a broker live: rates, times, lag, tiers and disks."),
    CommandSpec("completion", ".completion:completion", "Print a script for the completion of a shell."),
    CommandSpec("produce", ".produce.command:produce", "Write records to a topic."),
    CommandSpec("consume", ".consume.command:consume", "Read records of topics, and follow them."),
    GroupSpec(
        "topics",
        "Create, list, describe, alter and delete topics.",
        ("topics create orders --partitions 3 -b localhost:9092", "topics list -b localhost:9092"),
        (
            CommandSpec("create", ".topics:create", "Create a topic."),
            CommandSpec("list", ".topics:list_", "List topics."),
            CommandSpec("describe", ".topics:describe", "Describe topics and their partitions."),
            CommandSpec("alter", ".topics:alter", "Add partitions to a topic."),
            CommandSpec("delete", ".topics:delete", "Delete topics and everything in them."),
        ),
    ),
    GroupSpec(
        "groups",
        "List, describe and delete groups, and reset or delete their offsets.",
        ("groups list -b localhost:9092", "groups describe billing -b localhost:9092"),
        (
            CommandSpec("list", ".groups.listing:list_", "List groups, their types and states."),
            CommandSpec("describe", ".groups.describe:describe", "Describe offsets, lags and members."),
            CommandSpec("delete", ".groups.listing:delete", "Delete groups with their offsets."),
            CommandSpec(
                "delete-offsets", ".groups.delete_offsets:delete_offsets", "Delete a group's offsets of topics."
            ),
            CommandSpec(
                "reset-offsets", ".groups.reset:reset_offsets", "Set the offsets from which a group continues."
            ),
        ),
    ),
    GroupSpec(
        "transactions",
        "List, describe and abort transactions, and find those that hang.",
        ("transactions list --state Ongoing -b localhost:9092", "transactions find-hanging -b localhost:9092"),
        (
            CommandSpec("list", ".transactions.command:list_", "List transactional ids and their states."),
            CommandSpec("describe", ".transactions.command:describe", "Describe transactional ids."),
            CommandSpec("abort", ".transactions.command:abort", "Abort a transaction."),
            CommandSpec(
                "find-hanging", ".transactions.command:find_hanging", "Find transactions that no coordinator knows."
            ),
        ),
    ),
    GroupSpec(
        "configs",
        "Describe and change the settings of topics and brokers.",
        (
            "configs describe --entity-type topics -b localhost:9092",
            "configs alter --entity-type topics --entity-name orders --add-config retention.ms=3600000",
        ),
        (
            CommandSpec("describe", ".configs:describe", "Describe the settings of topics or brokers."),
            CommandSpec("alter", ".configs:alter", "Change the settings of a topic or a broker."),
        ),
    ),
    GroupSpec(
        "acls",
        "List, add and remove access rules.",
        (
            "acls list -b localhost:9092",
            "acls add --allow-principal User:alice --producer --topic orders -b localhost:9092",
        ),
        (
            CommandSpec("list", ".acls:list_", "List access rules."),
            CommandSpec("add", ".acls:add", "Add access rules."),
            CommandSpec("remove", ".acls:remove", "Remove access rules."),
        ),
    ),
    GroupSpec(
        "users",
        "List, set and remove users with passwords (SCRAM).",
        ("users list -b localhost:9092", "users set alice -b localhost:9092"),
        (
            CommandSpec("list", ".users:list_", "List users and their mechanisms."),
            CommandSpec("set", ".users:set_", "Create a user, or set its password."),
            CommandSpec("remove", ".users:remove", "Remove a user."),
        ),
    ),
    GroupSpec(
        "tokens",
        "Create, list, renew and expire delegation tokens.",
        (
            "tokens create --command-config alice.properties -b localhost:9093",
            "tokens list --command-config alice.properties -b localhost:9093",
        ),
        (
            CommandSpec("create", ".tokens:create", "Create a token to log in with."),
            CommandSpec("list", ".tokens:list_", "List tokens."),
            CommandSpec("renew", ".tokens:renew", "Extend the life of a token."),
            CommandSpec("expire", ".tokens:expire", "Expire a token."),
        ),
    ),
    GroupSpec(
        "quotas",
        "List, set and remove the quotas of users, client ids and addresses.",
        (
            "quotas list -b localhost:9092",
            "quotas set --user alice producer_byte_rate=1048576 -b localhost:9092",
        ),
        (
            CommandSpec("list", ".quotas:list_", "List quotas."),
            CommandSpec("set", ".quotas:set_", "Set quotas."),
            CommandSpec("remove", ".quotas:remove", "Remove quotas."),
        ),
    ),
    GroupSpec(
        "features",
        "Describe and change the feature levels of a cluster.",
        ("features describe -b localhost:9092", "features upgrade --release-version 4.4 -b localhost:9092"),
        (
            CommandSpec("describe", ".features:describe", "Describe supported and finalized levels."),
            CommandSpec("upgrade", ".features:upgrade", "Raise levels, to a release or by feature."),
            CommandSpec("downgrade", ".features:downgrade", "Lower levels, to a release or by feature."),
        ),
    ),
    GroupSpec(
        "cluster",
        "Show the state of a cluster of brokers, and run one for development.",
        ("cluster status -b localhost:9092", "cluster dev --brokers 3"),
        (
            CommandSpec("status", ".cluster.status:status", "Show brokers, controllers and replicas behind."),
            CommandSpec("check", ".cluster.check:check_", "Check whether a broker's directories can be taken over."),
            CommandSpec("dev", ".cluster.dev:dev", "Run a cluster for development in one terminal."),
        ),
    ),
    GroupSpec(
        "storage",
        "Format the log directories of a broker that joins a cluster.",
        ("storage format --cluster-id 5L6g3nShT-eMCtK--X86sw --config server.properties",),
        (CommandSpec("format", ".storage:format_", "Format the log directories of a broker."),),
    ),
    GroupSpec(
        "metadata",
        "Back up and restore the metadata that a broker keeps outside its logs.",
        ("metadata export --data-dir D -o metadata.json", "metadata import metadata.json --data-dir D"),
        (
            CommandSpec("export", ".metadata.commands:export", "Write the metadata as one JSON document."),
            CommandSpec("import", ".metadata.commands:import_", "Create the metadata from a document."),
            CommandSpec("check", ".metadata.commands:check", "Check a document, by itself or against a directory."),
        ),
    ),
    GroupSpec(
        "log-dirs",
        "Describe the log directories of brokers and their remote tier.",
        ("log-dirs describe --topic orders -b localhost:9092",),
        (CommandSpec("describe", ".log_dirs:describe", "Describe the sizes of partitions by directory."),),
    ),
    GroupSpec(
        "index",
        "Inspect, verify, rebuild and convert offset and time indexes.",
        ("index verify data", "index convert --to 12 data/flights-0"),
        (
            CommandSpec("inspect", ".index.command:inspect", "Show the format and entries of indexes."),
            CommandSpec("verify", ".index.command:verify", "Check every index entry against the log."),
            CommandSpec("rebuild", ".index.command:rebuild", "Rebuild indexes from their logs."),
            CommandSpec("convert", ".index.command:convert", "Convert offset indexes between formats."),
        ),
    ),
    CommandSpec("dump", ".dump.command:dump", "Print segment, index and checkpoint files as kafka-dump-log does."),
    CommandSpec("doctor", ".doctor.command:doctor", "Find problems, and the commands that fix them."),
    CommandSpec("fsck", ".fsck.command:fsck", "Check log directories offline, and repair them."),
    GroupSpec(
        "retention",
        "Explain why records are kept and when they are deleted.",
        ("retention explain orders --data-dir D --what-if retention.ms=3600000",),
        (
            CommandSpec(
                "explain", ".retention.explain:explain", "Explain why each segment is kept and when it is deleted."
            ),
        ),
    ),
    GroupSpec(
        "spark",
        "Run jobs over whole data directories and buckets on Spark.",
        (
            "spark audit --data-dir /var/lib/stratalog --remote s3://bucket/tiered",
            "spark index verify --data-dir /var/lib/stratalog --json",
            "spark stats --remote s3://bucket/tiered --master spark://host:7077",
        ),
        (
            CommandSpec("read", ".spark.read:read", "Print records, or write them to files."),
            CommandSpec("ingest", ".spark.ingest:ingest", "Load files into a topic."),
            CommandSpec("compact", ".spark.compact:compact", "Compact topics."),
            GroupSpec(
                "index",
                "Verify, rebuild and convert indexes of whole directories and buckets.",
                (
                    "spark index verify --data-dir /var/lib/stratalog",
                    "spark index convert --to 12 --remote s3://bucket/tiered --dry-run",
                ),
                (
                    CommandSpec("verify", ".spark.index:verify", "Check every entry against the records."),
                    CommandSpec("rebuild", ".spark.index:rebuild", "Rebuild indexes from the records."),
                    CommandSpec("convert", ".spark.index:convert", "Convert offset indexes."),
                ),
            ),
            CommandSpec("audit", ".spark.audit:audit", "Check every segment of directories and buckets."),
            CommandSpec("retention", ".spark.retention:retention", "Report what retention will delete."),
            CommandSpec("export", ".spark.export:export", "Write topics as tables."),
            CommandSpec("restore", ".spark.restore:restore", "Restore topics from a bucket."),
            CommandSpec("stats", ".spark.stats:stats", "Measure topics: records, bytes, keys, times."),
            CommandSpec("doctor", ".spark.doctor:doctor", "Examine a Spark session and its executors."),
            CommandSpec("package", ".spark.package:package", "Build the archive that executors need."),
        ),
    ),
    GroupSpec(
        "tier",
        "List, check, repair and restore tiered topics in a bucket.",
        ("tier ls s3://bucket/tiered", "tier audit s3://bucket/tiered --data-dir /var/lib/stratalog"),
        (
            CommandSpec("ls", ".tier.ls:ls", "List the topics, partitions and segments in a bucket."),
            CommandSpec("stat", ".tier.stat:stat", "Show one segment, or sums over a bucket."),
            CommandSpec("status", ".tier.status:status", "Show what waits for upload or deletion, and why."),
            CommandSpec("audit", ".tier.audit:audit", "Check what a bucket holds."),
            CommandSpec("repair", ".tier.repair:repair", "Repair what an audit finds, after asking."),
            CommandSpec("restore", ".tier.restore:restore", "Restore topics into a data directory."),
            CommandSpec("owner", ".tier.owner:owner", "Show or change the cluster that owns a bucket."),
        ),
    ),
)


class LazyCommand(HelpfulCommand):
    """A placeholder in a listing for a command that is not imported yet."""

    def __init__(self, spec: CommandSpec) -> None:
        super().__init__(name=spec.name, help=spec.summary, callback=None)
        self._spec = spec

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return load(self._spec).make_context(info_name, args, parent, **extra)


def command(spec: CommandSpec | GroupSpec) -> Any:
    """Return the placeholder of `spec` in its group."""
    return LazyCommand(spec) if isinstance(spec, CommandSpec) else group(spec)


def group(spec: GroupSpec) -> HelpfulGroup:
    """Build a group; its sub-commands are not loaded."""
    examples = "\n".join(f"  stratalog {example}" for example in spec.examples)
    return HelpfulGroup(
        name=spec.name,
        help=f"{spec.summary}\n\n\b\nExamples:\n{examples}",
        short_help=spec.summary,
        no_args_is_help=True,
        context_settings=CONTEXT_SETTINGS,
        commands={one.name: command(one) for one in spec.commands},
    )


def load(spec: CommandSpec) -> Any:
    """Import the module of a command and return the command that its function defines."""
    module, _, function = spec.target.partition(":")
    app = typer.Typer(add_completion=False, context_settings=CONTEXT_SETTINGS)
    app.command(cls=HelpfulCommand)(flattened(getattr(importlib.import_module(module, __package__), function)))
    return get_command(app)
