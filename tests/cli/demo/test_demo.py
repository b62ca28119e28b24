"""The main job as a user types it, on fewer flights; and that it notices when something is wrong."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from stratalog.cli.demo import flights as source, run as demo_run
from stratalog.cli.demo.flights import Delays, Flight, FlightFacts
from stratalog.cli.demo.report import DemoReport
from stratalog.engine.dirs.data_dir import is_served

DEMO = [sys.executable, "-m", "stratalog", "demo"]


@pytest.mark.spark
def test_the_main_job_on_a_part_of_the_flights(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    done = subprocess.run([*DEMO, "--rows", "60000", "--dir", str(home)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every flight and every answer agrees with the source." in done.stdout
    assert [line for line in done.stderr.splitlines() if "/stratalog/" in line] == []  # no stack trace of ours
    assert not is_served(home / "data")
    assert (home / "data" / "flights-5").is_dir()
    assert list((home / "data" / "remote-store").rglob("*.manifest.json"))


def test_a_demo_that_is_ended_leaves_no_broker(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    with subprocess.Popen([*DEMO, "--rows", "2000", "--dir", str(home)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "Start a broker" not in process.stdout.readline():
            pass
        assert is_served(home / "data")
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert not is_served(home / "data")


def test_a_directory_that_is_not_the_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    done = subprocess.run([*DEMO, "--dir", str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "is neither empty nor from an earlier demo" in line
    assert (tmp_path / "precious").exists()


def test_the_source_has_every_flight_and_pandas_the_known_answers() -> None:
    frame = source.load(None)
    records = source.records(frame)
    answers = source.answers(frame)
    assert len(records) == source.FLIGHTS_TOTAL == sum(cell.flights for cell in answers.delays.values())
    assert [r.timestamp_ms for r in records] == sorted(r.timestamp_ms for r in records)
    assert sum(record.key is None for record in records) == 2_512  # flights without a tail number
    assert len(answers.delays) == 185
    assert (answers.busiest_hour_ms, answers.busiest_hour_flights) == (1_379_073_600_000, 94)


FLIGHTS = [Flight(b"N1", b"{}", 1), Flight(None, b'{"a":1}', 2)]
RIGHT = FlightFacts({("AA", 1): Delays(2, 2, 3.0, 1, 4.0)}, 5, 2)


@pytest.mark.parametrize(
    ("consumed", "found", "scanned", "said"),
    [
        (FLIGHTS, RIGHT, 2, ""),
        (FLIGHTS[:1], RIGHT, 2, "missed 1 flights and got 0"),
        ([*FLIGHTS, FLIGHTS[0]], RIGHT, 2, "missed 0 flights and got 1"),
        ([FLIGHTS[0], Flight(None, b'{"a":1}', 3)], RIGHT, 2, "missed 1 flights and got 1"),
        (FLIGHTS, RIGHT, 3, "Spark read 3 records"),
        (FLIGHTS, FlightFacts({("AA", 1): Delays(2, 2, 3.5, 1, 4.0)}, 5, 2), 2, "1 cells of the delays differ"),
        (FLIGHTS, FlightFacts({}, 5, 2), 2, "1 cells of the delays differ"),
        (FLIGHTS, FlightFacts(RIGHT.delays, 6, 2), 2, "busiest hour"),
    ],
)
def test_any_difference_is_found_and_said(
    consumed: list[Flight], found: FlightFacts, scanned: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = Counter(consumed)
    fine = demo_run._check(DemoReport(), FLIGHTS, counted, expected=RIGHT, found=found, scanned=scanned, settled=[])
    assert fine == (said == "")
    assert said in capsys.readouterr().out
