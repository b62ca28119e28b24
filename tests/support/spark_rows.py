"""A Spark session with Spark's own Kafka source, as a process of its own: rows, or the error, for options on each line.

    python spark_rows.py connector.jar,kafka-clients.jar,...

Prints `{}` when it is ready, then for each JSON object of options on standard input `{"rows": [...]}` or
`{"error": "..."}`. With an option `checkpoint`, a directory, a stream with Trigger.AvailableNow is run instead, and the
offsets of its batches come back, `{"offsets": [...]}`.

It runs in an environment of its own, which has pyspark and nothing of this project.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

COLUMNS = [
    "topic",
    "partition",
    "offset",
    "unix_millis(timestamp) as timestamp",
    "timestampType",
    "hex(key) as key",
    "hex(value) as value",
]
HEADERS = (
    "to_json(transform(headers, h -> struct(h.key, hex(h.value) as value)), "
    "map('ignoreNullFields', 'false')) as headers"
)


def main() -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", sys.argv[1])
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "768m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(spark, json.loads(line))), flush=True)


def _answer(spark: Any, options: dict[str, str]) -> dict[str, Any]:
    checkpoint = options.pop("checkpoint", None)
    columns = [*COLUMNS, HEADERS] if options.get("includeHeaders") == "true" else COLUMNS
    try:
        if checkpoint is not None:
            return {"offsets": _offsets_of_batches(spark, options, Path(checkpoint))}
        frame = spark.read.format("kafka").options(**options).load()
        return {"rows": [row.asDict() for row in frame.selectExpr(*columns).collect()]}
    except Exception as error:  # whatever Spark raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}


def _offsets_of_batches(spark: Any, options: dict[str, str], checkpoint: Path) -> list[Any]:
    frame = spark.readStream.format("kafka").options(**options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    files = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    return [json.loads(path.read_text().splitlines()[-1]) for path in sorted(files, key=lambda path: int(path.name))]


if __name__ == "__main__":
    main()
