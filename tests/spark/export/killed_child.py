"""An export that kills its own process at one step, with SIGKILL.

python -m tests.spark.export.killed_child DATA TABLE before-commit|after-commit|never
"""

from __future__ import annotations

import os
import signal
import sys

import stratalog.spark
from stratalog.spark.export import export
from stratalog.spark.export.files import LocalFiles
from stratalog.spark.export.parquet_table import COMMITS


def main(data: str, table: str, when: str) -> None:
    create = LocalFiles.create

    def dying_create(self: LocalFiles, path: str, content: bytes) -> bool:
        is_commit = path.startswith(COMMITS) and b'"after-' not in content
        if is_commit and when == "before-commit":
            os.kill(os.getpid(), signal.SIGKILL)
        made = create(self, path, content)
        if is_commit and when == "after-commit":
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    setattr(LocalFiles, "create", dying_create)  # noqa: B010
    spark = stratalog.spark.local_session("killed", **{"spark.master": "local[2]"})
    export(spark, source={"path": data, "subscribe": "orders"}, to=table)


if __name__ == "__main__":
    main(*sys.argv[1:])
