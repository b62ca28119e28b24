"""`stratalog metadata export|import|check`: back up and restore the metadata that a broker keeps outside its logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stratalog.broker.metadata import (
    STORE_FILE,
    document_bytes,
    document_problems,
    export_document,
    import_document,
    parse_document,
)
from stratalog.cli.metadata.differences import unlike
from stratalog.cli.options import Json, PlanOnly
from stratalog.cli.out import counted, notice, print_json
from stratalog.cli.streams import stdin_bytes
from stratalog.engine.dirs import is_served, stored_cluster_id
from stratalog.errors import DataDirError, UsageError
from stratalog.util import REAL_FILESYSTEM, write_atomic

DataDir = Annotated[Path, typer.Option("--data-dir", help="The first data directory of the broker.")]
Document = Annotated[
    Path, typer.Argument(help="A document that `metadata export` wrote, or - for stdin.", metavar="FILE")
]


def export(
    data_dir: DataDir,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write atomically.  [default: stdout]")
    ] = None,
    with_credentials: Annotated[
        bool,
        typer.Option(
            "--with-credentials",
            help="Export credentials and secret settings too. Only the owner may read the file, so --output is needed.",
        ),
    ] = False,
) -> int:
    """Write the metadata of a broker as one JSON document: topics with ids and settings, access rules, configurations.

    A broker may be running: the document is a consistent snapshot.

    \b
    Examples:
      stratalog metadata export --data-dir /var/lib/stratalog -o metadata.json
      stratalog metadata export --data-dir /var/lib/stratalog -o secrets.json --with-credentials
    """
    if with_credentials and output is None:
        raise UsageError("--with-credentials needs --output FILE, which only its owner may read")
    document = export_document(data_dir, with_credentials=with_credentials)
    if output is None:
        sys.stdout.write(document_bytes(document).decode())
        return 0
    write_atomic(output, document_bytes(document), private=with_credentials)
    notice(f"{output}: {_summary(document)}")
    return 0


def import_(
    file: Document,
    data_dir: DataDir,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing metadata of the directory.")] = False,
    dry_run: PlanOnly = False,
) -> int:
    """Import a document as the metadata of a data directory that no broker serves. The import is atomic.

    Partitions keep their records if the document has their topics with the same ids; `metadata check` lists the others.
    If the document has no credentials, the directory has none afterwards.

    \b
    Examples:
      stratalog metadata import metadata.json --data-dir /var/lib/stratalog
      stratalog metadata import metadata.json --data-dir /var/lib/stratalog --replace --dry-run
    """
    document = _read(file)
    if is_served(data_dir):
        raise DataDirError(f"{data_dir} is in use by a broker; stop the broker first")
    _check_cluster(document, data_dir)
    if dry_run:
        bad = document_problems(document)
        if bad:
            raise UsageError(f"{file} cannot be imported: {bad[0]}")
        if (data_dir / STORE_FILE).exists() and not replace:
            raise DataDirError(f"{data_dir / STORE_FILE} exists; give --replace to replace it")
        print(f"{data_dir} would have {_summary(document)}")
        return 0
    import_document(document, data_dir, replace=replace)
    print(f"{data_dir} has {_summary(document)}")
    return 0


def check(
    file: Document,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Compare with the partitions of this data directory.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Check a document, and whether it matches a data directory. Nothing is changed.

    Exit code 0: it can be imported.
    Exit code 1: there are problems.
    Exit code 2: it is not a metadata document.

    \b
    Examples:
      stratalog metadata check metadata.json
      stratalog metadata check metadata.json --data-dir /var/lib/stratalog
    """
    document = _read(file)
    found = document_problems(document)
    if data_dir is not None:
        found += unlike(document, data_dir)
    if as_json:
        print_json({"problems": found, "topics": len(document["topics"]), "clusterId": document["clusterId"]})
    else:
        for problem in found:
            print(problem)
        if not found:
            print(f"{file} is valid: {_summary(document)}")
    return 1 if found else 0


def _read(file: Path) -> dict[str, Any]:
    if str(file) == "-":
        return parse_document(stdin_bytes().read(), "stdin")
    return parse_document(REAL_FILESYSTEM.read_bytes(file), str(file))


def _summary(document: dict[str, Any]) -> str:
    parts = [counted(len(document["topics"]), "topic"), counted(len(document["acls"]), "access rule")]
    if "credentials" in document:
        parts.append(counted(len(document["credentials"]), "credential"))
    return ", ".join(parts)


def _check_cluster(document: dict[str, Any], data_dir: Path) -> None:
    stored = stored_cluster_id(data_dir)
    if stored is not None and stored != document["clusterId"]:
        raise DataDirError(f"{data_dir} belongs to cluster {stored}, the document to {document['clusterId']}")
