"""A driver: jobs that lose an executor, then everything of `every_pipeline` on what is there by then; prints JSON.

    python -m tests.spark.cluster.driver SETTINGS

SETTINGS as of `every_pipeline`, and `workers`, pids of the cluster's; without any no executor is lost.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import stratalog.spark
from tests.spark.cluster.losses import compact, killer, write_in_bulk
from tests.spark.every_pipeline import Place, run_all


def main(settings: str) -> None:
    asked = json.loads(settings)
    place = Place(Path(asked["directory"]), asked["remote"], asked["options"])
    place.directory.mkdir(parents=True)
    workers = asked["workers"]
    killed: list[int] = []
    lose = killer(workers, killed) if workers else None
    spark = stratalog.spark.local_session("cluster", **asked["properties"])
    found, during = {}, {}
    for name, job in (("write", write_in_bulk), ("compaction", compact)):
        print(f"step: {name}, of which an executor is lost", file=sys.stderr, flush=True)
        found[f"{name} with a loss"], during[name] = job(spark, place.directory, lose)
    found |= run_all(spark, place)
    spark.stop()
    print(json.dumps({"found": found, "killed": len(set(killed)), "under way": during}))


if __name__ == "__main__":
    main(sys.argv[1])
