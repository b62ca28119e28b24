"""The PySpark job: reads data directory and bucket directly, without a broker."""

from __future__ import annotations

from pyspark.sql import SparkSession, functions as F

from stratalog.cli.demo.flights import Delays, FlightFacts
from stratalog.cli.demo.traffic import TOPIC
from stratalog.spark import local_session

_FLIGHT_SCHEMA = "carrier string, month int, dep_delay double, arr_delay double"


def start_session() -> SparkSession:
    """Return a local Spark session with the data source."""
    # A few thousand groups do not need Spark's default of 200 shuffle partitions.
    return local_session("stratalog demo", **{"spark.sql.shuffle.partitions": 4})


def run(spark: SparkSession, path: str, remote: str) -> tuple[FlightFacts, int]:
    """Delays by carrier and month and the busiest hour; also how many records were read."""
    records = (
        spark.read.format("stratalog")
        .option("path", path)
        .option("remote", remote)
        .option("subscribe", TOPIC)
        .option("columns", "value,timestamp")
        .load()
    )
    flights = records.select(
        F.from_json(F.col("value").cast("string"), _FLIGHT_SCHEMA).alias("flight"),
        F.date_trunc("hour", "timestamp").alias("hour"),
    ).select("flight.*", "hour")
    # One pass over the records answers both questions, by aggregating the small result of the finest grouping.
    cells = (
        flights.groupBy("carrier", "month", "hour")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.sum("dep_delay").alias("departure"),
            F.count("arr_delay").alias("arrived"),
            F.sum("arr_delay").alias("arrival"),
        )
        .cache()
    )
    delays = {
        (row.carrier, row.month): Delays(
            row.flights, row.departed, row.departure or 0.0, row.arrived, row.arrival or 0.0
        )
        for row in cells.groupBy("carrier", "month")
        .agg(*(F.sum(name).alias(name) for name in ("flights", "departed", "departure", "arrived", "arrival")))
        .collect()
    }
    busiest = (
        cells.groupBy((F.unix_millis("hour")).alias("hour_ms"))
        .agg(F.sum("flights").alias("flights"))
        .orderBy(F.desc("flights"), F.asc("hour_ms"))
        .first()
    )
    cells.unpersist()
    hour_ms, flights_in_hour = (busiest.hour_ms, busiest.flights) if busiest else (0, 0)
    return FlightFacts(delays, hour_ms, flights_in_hour), sum(cell.flights for cell in delays.values())
