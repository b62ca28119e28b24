"""A Spark session that scans on demand, as a process: one JSON line of options in, one JSON line of results out.

    python spark_scanner.py stratalog
    python spark_scanner.py kafka connector.jar,kafka-clients.jar,...

Both run the same query: how many records, how many bytes of values, which largest offset and timestamp; or something of
every column. Or they run a stream over all that is there, whose rows go nowhere. This file is a program for two
environments, so it imports nothing of the project before it knows which one it is in.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any


def stratalog_session() -> Any:
    import stratalog.spark

    return stratalog.spark.local_session("scan: stratalog", **SETTINGS)


def kafka_session(jars: str) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("scan: kafka")
    for key, value in (SETTINGS | {"spark.jars": jars}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


#: The same for both.
SETTINGS = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def scan(spark: Any, source: str, options: dict[str, str], every_column: bool) -> dict[str, float]:
    from pyspark.sql import functions as F

    found = [
        F.count("*").alias("records"),
        F.sum(F.length("value")).alias("value_bytes"),
        F.max("offset").alias("offset"),
        F.max(F.unix_millis("timestamp")).alias("timestamp_ms"),
    ]
    if every_column:
        found += [
            F.sum(F.length("key")).alias("key_bytes"),
            F.sum(F.length("topic")).alias("topic_bytes"),
            F.max("partition").alias("partition"),
            F.max("timestampType").alias("timestamp_type"),
        ]
    start = time.perf_counter()
    row = spark.read.format(source).options(**options).load().agg(*found).first()
    seconds = time.perf_counter() - start
    values = {name: value or 0 for name, value in row.asDict().items()}
    return values | {"seconds": seconds, "records_per_second": values["records"] / seconds}


def stream(spark: Any, source: str, options: dict[str, str]) -> dict[str, float]:
    """Time is that of whole triggers: to look, to plan, to write the checkpoint and to read."""
    by_columns = options.pop("by columns", "true")
    spark.conf.set("spark.stratalog.scan.columns", by_columns)
    rows = spark.readStream.format(source).options(**options).option("startingOffsets", "earliest").load()
    rows = rows.selectExpr("length(value)", "offset", "timestamp")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    records = sum(each.numInputRows for each in query.recentProgress)
    seconds = sum(each.durationMs["triggerExecution"] for each in query.recentProgress) / 1000
    return {"records": records, "seconds": seconds, "records_per_second": records / seconds}


def main() -> None:
    source = sys.argv[1]
    spark = stratalog_session() if source == "stratalog" else kafka_session(sys.argv[2])
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "every_column" in request:
            answer = scan(spark, source, request["options"], request["every_column"])
        else:
            answer = stream(spark, source, request["options"])
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
