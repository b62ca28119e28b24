"""A streaming query as a program of its own, to be killed: arguments are DATA TABLE CHECKPOINT."""

from __future__ import annotations

import sys

import stratalog.spark


def main(data: str, table: str, checkpoint: str) -> None:
    spark = stratalog.spark.local_session("killed", **{"spark.master": "local[2]"})
    frame = (
        spark.readStream.format("stratalog")
        .option("path", data)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "15")
        .load()
    )
    writer = frame.select("offset").writeStream.format("parquet").option("path", table)
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
