"""What Spark does with an S3 server whose credentials stand in the environment, then as options; prints JSON.

python -m tests.spark.secrets_child SETTINGS

SETTINGS is JSON: `source` and `target` (URLs), `options` (of the store), `wrong` (the same with a wrong secret) and
`directory`, for checkpoints and the event log. Spark logs to the standard error what it logs with level INFO.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import stratalog.spark
from stratalog.spark.export import export, read_table


def use_everything(
    spark: SparkSession, source: str, target: str, checkpoint: Path, options: Mapping[str, str]
) -> dict[str, Any]:
    """A batch, a stream into the bulk sink and an export; what they counted, plans and progress."""
    of_store = {f"remote.{name}": value for name, value in options.items()}
    reading = {"remote": source, "subscribe": "orders", "startingOffsets": "earliest"} | of_store
    batch = spark.read.format("stratalog").options(**reading).load().where("offset >= 3").select("value")
    stream = spark.readStream.format("stratalog").options(**reading).load().selectExpr("topic as value")
    writer = stream.writeStream.format("stratalog").option("remote", target).options(**of_store)
    writer = writer.option("topic", "copy").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    for frame in (batch, stream):
        frame.explain(mode="extended")
    query.explain(extended=True)
    source_options = {**reading, "includeHeaders": "true"}
    table = f"{target}-table"
    exported = export(spark, source=source_options, to=table, target_options=options)
    written = spark.read.format("stratalog").option("remote", target).options(**of_store)
    return {
        "batch": batch.count(),
        "stream": written.option("subscribe", "copy").load().count(),
        "export": exported.records,
        "table": read_table(spark, table, target_options=options).count(),
        "shown": [plan(batch), plan(stream), *(each.json for each in query.recentProgress)],
    }


def plan(frame: DataFrame) -> str:
    execution: Any = frame._jdf.queryExecution()
    return str(execution.toString())


def errors(spark: SparkSession, source: str, target: str, checkpoint: Path, wrong: Mapping[str, str]) -> list[str]:
    """What a wrong secret is answered with: by a batch, a stream, the sink and an export."""
    of_store = {f"remote.{name}": value for name, value in wrong.items()}
    reading = {"remote": source, "subscribe": "orders", "startingOffsets": "earliest"} | of_store

    def stream() -> None:
        frame = spark.readStream.format("stratalog").options(**reading).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def sink() -> None:
        rows = spark.range(3).selectExpr("cast(id as string) as value").write.format("stratalog")
        rows.options(**of_store).option("remote", target).option("topic", "t").mode("append").save()

    found = []
    for job in (
        lambda: spark.read.format("stratalog").options(**reading).load().count(),
        stream,
        sink,
        lambda: export(spark, source=reading, to=f"{target}-refused", target_options=wrong),
    ):
        try:
            job()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def main(settings: str) -> None:
    asked = json.loads(settings)
    directory, source, target = Path(asked["directory"]), asked["source"], asked["target"]
    (directory / "events").mkdir(parents=True)
    conf: dict[str, Any] = {
        "spark.master": "local[2]",
        "spark.eventLog.enabled": True,
        "spark.eventLog.compress": False,
        "spark.eventLog.dir": (directory / "events").as_uri(),
    }
    spark = stratalog.spark.local_session("secrets", **conf)
    spark.sparkContext.setLogLevel("INFO")
    found = {
        "environment": use_everything(spark, source, f"{target}/by-environment", directory / "1", {}),
        "options": use_everything(spark, source, f"{target}/by-options", directory / "2", asked["options"]),
        "errors": errors(spark, source, f"{target}/wrong", directory / "3", asked["wrong"]),
    }
    spark.stop()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
