"""A Spark session with Spark's own Kafka source, as a process of its own: rows, or the error, for options on each line.

    python spark_rows.py connector.jar,kafka-clients.jar,...

Prints `{}` when it is ready, then for each JSON object of options on standard input `{"rows": [...]}` or
`{"error": "..."}`. It runs in an environment of its own, which has pyspark and nothing of this project.
"""

from __future__ import annotations

import json
import sys
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
HEADERS = "to_json(transform(headers, h -> struct(h.key, hex(h.value) as value)), map('ignoreNullFields', 'false')) as headers"


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
    columns = [*COLUMNS, HEADERS] if options.get("includeHeaders") == "true" else COLUMNS
    try:
        frame = spark.read.format("kafka").options(**options).load()
        return {"rows": [row.asDict() for row in frame.selectExpr(*columns).collect()]}
    except Exception as error:  # whatever Spark raises is the answer
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
