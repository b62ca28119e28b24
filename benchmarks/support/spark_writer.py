"""A Spark session that writes Parquet files into a topic on demand, as a process: one JSON line in, one out.

    python spark_writer.py stratalog
    python spark_writer.py kafka connector.jar,kafka-clients.jar,...

This file is a program for two environments, so it imports nothing of the project before it knows which one it is in.
"""

from __future__ import annotations

import json
import sys
import time

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
        rows = spark.read.parquet(request["input"])
        start = time.perf_counter()
        writer = rows.write.format(sink).options(**request["options"])
        (writer.mode("append") if sink == "stratalog" else writer).save()
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
