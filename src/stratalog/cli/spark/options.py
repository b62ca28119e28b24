"""Options that the jobs share: where segments lie, which topics, and how the store is reached."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.spark.session import key_values
from stratalog.errors import UsageError

Paths = Annotated[
    list[Path] | None,
    typer.Option("--path", metavar="DIR", help="A data directory of a broker; may be repeated."),
]
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote", metavar="URL", help="A bucket of the remote tier: s3://bucket/prefix, file:///directory."
    ),
]
RemoteOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--remote-option",
        metavar="KEY=VALUE",
        help="An option of the object store, such as endpoint, region or allow_http; may be repeated. Else AWS_* says.",
    ),
]
Topics = Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="One line of JSON, for machines.")]


def remote_options(texts: Iterable[str] | None) -> dict[str, str]:
    return key_values("--remote-option", texts)


def remote_url(text: str | None) -> str | None:
    """A URL; a directory is one too. UsageError for a directory that is not there."""
    if text is None:
        return None
    if "://" in text:
        return text
    directory = Path(text).absolute()
    if not directory.is_dir():
        raise UsageError(f"--remote {text}: there is no such directory")
    return directory.as_uri()


def data_dirs(paths: Iterable[Path] | None) -> list[str]:
    """Absolute paths: workers have other working directories. UsageError for one that is not there."""
    found = []
    for path in paths or ():
        if not path.is_dir():
            raise UsageError(f"--path {path}: there is no such directory")
        found.append(str(path.absolute()))
    return found


def require_place(paths: Iterable[Path] | None, remote: str | None) -> None:
    if not paths and remote is None:
        raise UsageError("nothing to look at: give --path DIR, --remote URL, or both")
