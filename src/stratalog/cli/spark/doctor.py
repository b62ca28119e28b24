"""`stratalog spark doctor`: what does not work in a Spark session, what is slow, and how to mend it."""

from __future__ import annotations

import logging
from textwrap import fill
from typing import TYPE_CHECKING, Any

from stratalog.cli.options import Json, key_values
from stratalog.cli.out import on_terminal, print_json, print_rows
from stratalog.cli.spark.session import SessionOptions
from stratalog.util import terminal_width

if TYPE_CHECKING:
    from stratalog.spark.session import SessionHealth


def doctor(session: SessionOptions, as_json: Json = False) -> int:
    """Examine this machine, a Spark session and its executors.

    Shows versions, every use of Spark's inside (on or off, why, and what that costs) and what workers on the executors
    can import. Each problem names the command or property that mends it. Exit code 1: something does not work. What is
    only slow or untested is a warning.

    \b
    Examples:
      stratalog spark doctor
      stratalog spark doctor --master spark://host:7077 --json
      stratalog spark doctor --remote-session sc://host:15002
    """
    health = examined(session)
    if as_json:
        print_json(_document(health))
    else:
        _print(health)
    return 0 if health.works else 1


def examined(options: SessionOptions) -> SessionHealth:
    """Return the health of this machine, and of a session where one starts."""
    asked = key_values("--conf", options.conf)
    from stratalog.spark import session  # --help does without

    health = session.examine_machine(starts_jvm=options.remote_url is None)
    if health.works:
        # The table says the same, and more.
        logging.getLogger("stratalog.spark.capabilities").setLevel(logging.ERROR)
        try:
            with options.open("stratalog doctor") as spark:
                health = session.examine_session(spark, asked)
        except session.WorkerPythonError as error:
            health = session.with_error(health, error)
    return health


def _document(health: SessionHealth) -> dict[str, Any]:
    return {
        "works": health.works,
        "versions": dict(health.versions),
        "problems": [
            {"severity": each.weight.value, "problem": each.what, "mend": each.mend} for each in health.problems
        ],
        "capabilities": [
            {
                "name": each.capability.name,
                "on": each.is_on,
                "why_off": each.why_off,
                "is_chosen": each.is_chosen,
                "gives": each.capability.gives,
                "cost_when_off": each.capability.cost,
                "mend": each.capability.mend,
                "upstream": each.capability.upstream,
            }
            for each in health.capabilities
        ],
        "workers": [
            {
                "host": each.host,
                "tasks": tasks,
                "executable": each.executable,
                "python": each.python,
                "stratalog": each.stratalog,
                "pyarrow": each.pyarrow,
            }
            for each, tasks in health.workers.items()
        ],
    }


def _print(health: SessionHealth) -> None:
    _print_rows("Versions", ("component", "version"), health.versions.items())
    _print_rows(
        "Capabilities",
        ("capability", "state", "what it gives, or why it is off and what that costs", "upstream"),
        [
            (
                each.capability.name,
                "on" if each.is_on else "off",
                each.capability.gives if each.is_on else f"{each.why_off}. {each.capability.cost}",
                each.capability.upstream or "none",
            )
            for each in health.capabilities
        ],
    )
    _print_rows(
        "Workers on executors",
        ("host", "tasks", "executable", "Python", "stratalog", "pyarrow"),
        [
            (each.host, tasks, each.executable, each.python, each.stratalog or "missing", each.pyarrow or "missing")
            for each, tasks in health.workers.items()
        ],
    )
    for problem in health.problems:
        what = f"{problem.weight.value}: {problem.what}"
        print(fill(what, terminal_width(), break_long_words=False, break_on_hyphens=False) if on_terminal() else what)
        print(f"    {problem.mend}")  # one line, to be copied
    if not health.problems:
        print("No problems found.")


def _print_rows(title: str, columns: tuple[str, ...], rows: Any) -> None:
    rows = list(rows)
    if not rows:
        return
    print_rows(columns, rows if on_terminal() else [columns, *rows], title)
    if not on_terminal():
        print()
