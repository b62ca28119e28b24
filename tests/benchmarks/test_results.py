"""Several runs as one, what got slower, and the page and pictures that show it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import compare
from benchmarks.curves import CURVES, pictures
from benchmarks.partitions import growth
from benchmarks.suite import SUITE
from benchmarks.support.chart import Line, draw
from benchmarks.support.measure import Rounds, spread
from benchmarks.support.report import Report, Result
from benchmarks.support.results import noisy, pooled, read_report
from benchmarks.table import BEGIN, END, put_into, table


def row(job: str, pairs: list[tuple[float, float]], *, more_is_better: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "job": job,
        "ratio": pairs[0][0] / pairs[0][1],
        "ours": pairs[0][0],
        "peer": pairs[0][1],
        "unit": "MB/s",
        "peer_name": "kafka",
        "target": 2.0,
        "more_is_better": more_is_better,
        "pairs": pairs,
        "is_met": True,
        **more,
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 1.0, 1.0], 0.0),
        ([9.0, 10.0, 11.0], 0.1),  # too few to leave any out
        ([1.0, 9.0, 9.5, 10.0, 10.0, 10.0, 10.5, 11.0, 100.0], 0.1),  # of nine, one is left out at either end
    ],
)
def test_spread_is_half_of_the_interval_of_the_median(values: list[float], expected: float) -> None:
    assert spread(values) == pytest.approx(expected)


def test_spread_of_a_steady_disturbance_shrinks_with_rounds() -> None:
    few, many = [0.8, 1.0, 1.2] * 2, [0.8, 1.0, 1.2] * 20
    assert spread(many) < spread(few)


def test_runs_of_a_job_are_pooled_and_judged_again() -> None:
    first = [row("a", [(1.0, 1.0), (9.0, 3.0)]), row("b", [(1.0, 1.0)])]
    second = [row("a", [(12.0, 3.0)])]
    a, b = pooled([first, second])
    assert (a["ratio"], a["ours"], a["peer"], a["is_met"]) == (3.0, 9.0, 3.0, True)
    assert a["pairs"] == [(1.0, 1.0), (9.0, 3.0), (12.0, 3.0)]
    assert (b["ratio"], b["spread"], b["is_met"]) == (1.0, None, False)
    assert noisy([a, b], 0.1) == [a]


@pytest.mark.parametrize("more_is_better", [True, False])
def test_compare_names_what_got_slower_and_leaves_noise_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more_is_better: bool
) -> None:
    def file(name: str, steady: float, noise: float) -> str:
        worse = steady if more_is_better else 1 / steady
        rows = [
            row("steady", [(worse * n, n) for n in (1.0, 2.0, 3.0)], more_is_better=more_is_better),
            row("noisy", [(noise, 1.0), (noise / 4, 1.0), (noise * 4, 1.0)], more_is_better=more_is_better),
        ]
        path = tmp_path / name
        path.write_text(json.dumps({"machine": {}, "results": rows}))
        return str(path)

    old, new = file("old", 2.0, 1.0), file("new", 1.5, 0.7)
    assert compare.main([old, new]) == 1
    said = capsys.readouterr().out
    assert "slower  steady" in said
    assert "noisy" not in said
    assert compare.main([old, old]) == 0
    assert compare.main([new, old]) == 0
    assert "faster  steady" in capsys.readouterr().out


def test_a_report_keeps_the_rounds_in_the_unit_of_the_figures(tmp_path: Path) -> None:
    rounds = Rounds("ours", "kafka", {"ours": [{"b": 2e6}, {"b": 4e6}], "kafka": [{"b": 1e6}, {"b": 1e6}]})
    path = tmp_path / "report.json"
    report = Report(str(path))
    report.add(Result.of("job", rounds, "b", unit="MB/s", scale=1e6), rounds)
    report.close()
    (kept,) = pooled([read_report(path)["results"]])
    assert kept["pairs"] == [[2.0, 1.0], [4.0, 1.0]]
    assert (kept["ratio"], kept["ours"]) == (3.0, 3.0)


def test_a_file_that_is_no_report_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[]")
    with pytest.raises(SystemExit, match=r"other\.json: expected"):
        read_report(path)


def test_the_table_of_a_page_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    machine = {"cores": 2, "cpu": "C", "memory_gib": 1, "kernel": "6", "python": "3.11", "load_at_start": 0.5}
    (first,) = pooled([[row("job", [(4.0, 1.0), (1.0, 1.0)])]])
    put_into(page, [{**first, "is_noisy": True}], machine)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| job | **2.50** | >= 2 | 2.5 | 1 | MB/s | 60%, noisy |" in text
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="between which"):
        put_into(page, [first], machine)


def test_the_repository_page_has_the_marks() -> None:
    text = (Path(__file__).parents[2] / "docs/explanation/benchmarks.md").read_text(encoding="utf-8")
    assert text.index(BEGIN) < text.index(END)


def test_every_benchmark_of_the_suite_and_of_the_curves_exists() -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    for name in {run.name for run in SUITE} | {curve.benchmark for curve in CURVES.values()}:
        assert (folder / f"{name}.py").exists(), name


@pytest.mark.parametrize(
    ("cost", "is_linear"),
    [
        (lambda size: 0.5 + size / 1000, True),
        (lambda size: 0.5, True),
        (lambda size: 0.5 + math.sqrt(size), True),
        (lambda size: 0.5 + size * size / 1e8, False),
        (lambda size: 0.5 + size / 1000 * math.log2(size), False),
    ],
)
def test_what_grows_faster_than_the_partitions_is_found(cost: Callable[[int], float], is_linear: bool) -> None:
    sizes = [100, 1_000, 10_000]
    exact = growth(sizes, [[cost(size)] * 3 for size in sizes])
    assert exact.is_linear_at_most is is_linear
    noisy_rounds = growth(sizes, [[cost(size) - 5, cost(size), cost(size) + 5] for size in sizes])
    assert noisy_rounds.is_linear_at_most  # of noise, nothing can be said


def test_a_picture_has_a_point_for_each_value_and_larger_values_higher() -> None:
    text = draw("T <&>", "size", "s", [Line("ours", [(1, 0.1), (1000, 10)]), Line("kafka", [(1, 1), (1000, 1)])])
    root = ElementTree.fromstring(text)
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    low, high, first, second = ((float(c.attrib["cx"]), float(c.attrib["cy"])) for c in circles)
    assert low[0] == first[0] < high[0] == second[0]
    assert high[1] < first[1] == second[1] < low[1]  # y grows downwards


def test_curves_are_drawn_of_the_rows_that_fit_and_need_two_sizes() -> None:
    def at(size: int, job: str) -> dict[str, Any]:
        return row(job, [(size + 1.0, 1.0)], curve="compaction", size=size)

    rows = [
        at(20, "compaction, x, 20 MB"),
        at(20, "compaction, x, 20 MB: peak memory"),
        at(100, "compaction, x, 100 MB"),
    ]
    (name,) = pictures(rows)
    assert name == "compaction.svg"
    assert len(ElementTree.fromstring(pictures(rows)[name]).findall(".//{*}circle")) == 4
    assert not pictures(rows[:2])


def test_the_table_marks_what_missed_its_target() -> None:
    assert ">= 2, missed" in table(pooled([[row("job", [(1.0, 1.0)])]]))
