"""A Spark session that writes Parquet files into a topic on demand, as a process: one JSON line in, one out.

    python spark_writer.py stratalog
    python spark_writer.py kafka connector.jar,kafka-clients.jar,...

This file is a program for two environments, so it imports nothing of the project before it knows which one it is in.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from spark_scanner import kafka_session, stratalog_session  # type: ignore[import-not-found]


def main() -> None:
    sink = sys.argv[1]
    spark = stratalog_session() if sink == "stratalog" else kafka_session(sys.argv[2])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "make" in request:
            count, size = request["make"]
            made = spark.range(0, count, 1, 4).selectExpr(
                "concat('key-', id % 100000) as key",
                f"substr(repeat(sha2(cast(id as string), 512), {-(-size // 128)}), 1, {size}) as value",
            )
            made.write.mode("overwrite").parquet(request["input"])
            print(json.dumps({"made": count}), flush=True)
            continue
        seconds = (ingest if request.get("way") == "ingest" else write)(spark, sink, request)
        print(json.dumps({"seconds": seconds}), flush=True)
    spark.stop()


def write(spark: Any, sink: str, request: dict[str, Any]) -> float:
    """How long Spark takes to write the rows of the files."""
    rows = spark.read.parquet(request["input"])
    start = time.perf_counter()
    writer = rows.write.format(sink).options(**request["options"])
    (writer.mode("append") if sink == "stratalog" else writer).save()
    return time.perf_counter() - start


def ingest(spark: Any, sink: str, request: dict[str, Any]) -> float:
    """How long our own job takes for the files."""
    from stratalog.spark.ingest import Rows, ingest as load

    options = {name: value for name, value in request["options"].items() if name != "topic"}
    start = time.perf_counter()
    result = load(
        spark,
        request["input"],
        request["options"]["topic"],
        sink=options,
        rows=Rows(value="value", key="key"),
    )
    seconds = time.perf_counter() - start
    if result.rounds[0].through_spark is not None:
        raise SystemExit(f"{sink} had Spark read the files: {result.rounds[0].through_spark}")
    return seconds


if __name__ == "__main__":
    main()
