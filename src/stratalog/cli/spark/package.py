"""`stratalog spark package`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.options import Json


def package(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The archive to write, a .tar.gz file.")],
    generic_cpu: Annotated[
        bool,
        typer.Option("--generic-cpu", help="Compile for any processor. Use it if the executors' machines differ."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Pack an archive for the executors of a cluster: stratalog, its requirements, and compiled code.

    \b
    Examples:
      stratalog spark package --out stratalog_env.tar.gz
      stratalog spark export orders --remote s3://bucket/tiered --to s3://lake/orders \\
        --master spark://host:7077 \\
        --conf spark.archives=stratalog_env.tar.gz#environment \\
        --conf spark.pyspark.python=./environment/bin/python
    """
    from stratalog.spark.session import build_environment  # --help does without

    made = build_environment(out, generic_cpu=generic_cpu)
    if as_json:
        document = {"archive": str(made.archive), "bytes": made.size, "packages": list(made.packages)}
        print(json.dumps(document | {"properties": made.properties}, separators=(",", ":")))
        return 0
    print(f"{made.archive}: {made.size / (1 << 20):.0f} MiB, {len(made.packages)} packages; for a session:")
    for name, value in made.properties.items():
        print(f"  --conf {name}={value}")
    return 0
