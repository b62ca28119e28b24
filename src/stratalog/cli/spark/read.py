"""`stratalog spark read`: records of a query, printed or piped on."""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from itertools import chain
from typing import Annotated, Any

import typer

from stratalog.cli.options import (
    CommandConfig,
    DataDirs,
    JsonLines,
    Remote,
    RemoteOptions,
    TopicIds,
    Topics,
    key_values,
)
from stratalog.cli.out import on_terminal
from stratalog.cli.spark.options import data_dirs, remote_options, remote_url, require_place, with_login
from stratalog.cli.spark.session import SessionOptions
from stratalog.errors import UsageError
from stratalog.util import print_table

_TABLE_ROWS = 20


class Format(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def read(
    *,
    data_dir: DataDirs = None,
    remote: Remote = None,
    topic: Topics = None,
    topic_id: TopicIds = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="An option of the source, such as startingOffsets.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="EXPR,..", help="Columns to show: SQL expressions over the source's columns."
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Condition that records must meet.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help=f"Number of rows. Default: {_TABLE_ROWS} for a table, otherwise all."),
    ] = None,
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="Output format. A table in a pipe is lines with tabs; json is one object a line."
        ),
    ] = Format.TABLE,
    remote_option: RemoteOptions = None,
    command_config: CommandConfig = None,
    session: SessionOptions,
    as_json: JsonLines = False,
) -> int:
    """Print records straight from the segments in directories and buckets.

    Bytes that are not UTF-8 are printed in base64.

    \b
    Examples:
      stratalog spark read --data-dir /var/lib/stratalog --topic orders --limit 5
      stratalog spark read --remote s3://bucket/tiered --topic orders \\
        --where "timestamp > '2026-01-01'" \\
        --columns "offset, string(value)" --format csv
    """
    from stratalog.spark.pipelines import read_rows, source_options  # --help does without

    places = source_options(
        paths=data_dirs(data_dir),
        remote=remote_url(remote),
        remote_options=remote_options(remote_option),
        topics=topic or (),
    )
    given = (
        with_login(command_config)
        | ({"topicId": ",".join(topic_id)} if topic_id else {})
        | key_values("--option", option)
    )
    asked = {name.lower() for name in given}
    if not asked & {"path", "remote", "kafka.bootstrap.servers"}:
        require_place(data_dir, remote)
    if not topic:
        if not asked & {"subscribe", "subscribepattern", "assign"}:
            raise UsageError("no topic given: use --topic NAME (may be repeated) or --option subscribePattern=REGEX")
        del places["subscribe"]
    chosen = Format.JSON if as_json else form
    rows_max = _TABLE_ROWS if limit is None and chosen is Format.TABLE else limit
    wanted = _expressions(columns)
    with session.open("stratalog read") as spark:
        rows = read_rows(spark, {**places, **given}, columns=wanted, where=where, limit=rows_max)
        _print(rows, chosen)
    return 0


def _expressions(text: str | None) -> list[str]:
    """Split at commas outside parentheses."""
    found, depth = [""], 0
    for character in text or "":
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [each.strip() for each in found if each.strip()]


def _print(rows: Iterable[dict[str, Any]], form: Format) -> None:
    shown = ({name: _plain(value) for name, value in row.items()} for row in rows)
    if form is Format.JSON:
        for row in shown:
            print(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        return
    first = next(shown, None)
    if first is None:
        return
    cells = ([_cell(value) for value in row.values()] for row in chain([first], shown))
    if form is Format.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(first)
        writer.writerows(cells)
    elif on_terminal():
        print_table(list(first), list(cells))
    else:
        print("\t".join(first))
        for line in cells:
            print("\t".join(_one_word(cell) for cell in line))


def _one_word(cell: Any) -> str:
    """Return the text with tabs and line ends escaped."""
    text = "" if cell is None else str(cell)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold."""
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return "base64:" + base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
