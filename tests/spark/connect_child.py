"""A Spark Connect session on a server of its own (Spark's local mode): read, write, stream, export; prints JSON.

python -m tests.spark.connect_child DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import stratalog.spark
from stratalog.spark.export import Json, export, read_table
from stratalog.spark.jvm.java import spark_java_home


def main(root: Path) -> None:
    os.environ |= {"JAVA_HOME": str(spark_java_home()), "PYSPARK_PYTHON": sys.executable}
    os.environ["SPARK_TESTING"] = "1"  # the server takes a free port
    builder = SparkSession.builder.remote("local[2]").config("spark.sql.session.timeZone", "UTC")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    stratalog.spark.register(spark)
    source = {"path": str(root / "data"), "subscribe": "orders"}
    rows = stratalog.spark.read(spark, path=root / "data", subscribe="orders", include_headers=True)
    found = {
        "session": type(spark).__module__,
        "count": rows.count(),
        "filtered": sorted(row.offset for row in rows.where("offset >= 15 and partition = 0").collect()),
    }
    copy = rows.select("key", "value")
    (root / "copy").mkdir()
    (root / "streamed").mkdir()
    stratalog.spark.write(copy, path=root / "copy", topic="copy")
    found["copied"] = stratalog.spark.read(spark, path=root / "copy", subscribe="copy").count()
    stream = stratalog.spark.read_stream(
        spark, path=root / "data", subscribe="orders", starting_offsets="earliest"
    ).select("key", "value")
    writer = stratalog.spark.write_stream(
        stream, checkpoint_location=root / "state", path=root / "streamed", topic="streamed"
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    found["streamed"] = stratalog.spark.read(spark, path=root / "streamed", subscribe="streamed").count()
    table = str(root / "table")
    found["exported"] = export(spark, source=source, to=table, decode=Json("id BIGINT")).records
    found["undecoded"] = read_table(spark, table).where("undecoded is not null").count()
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
