"""Shows a broker that is watched: on a screen with keys, as plain lines, or as JSON."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

from rich.console import Console, Group

from stratalog.cli.out import print_json
from stratalog.cli.top.screen import KEYS, TopView, lines_of
from stratalog.cli.top.snapshot import TopOrder, TopSource
from stratalog.cli.top.terminal import KeyWaiter
from stratalog.cli.top.watching import BrokerWatch, TopState
from stratalog.util import SYSTEM_CLOCK, Clock

_PLAIN_WIDTH: Final = 120
#: How often the clock and the time since the last answer are redrawn, in seconds.
_TICK_S: Final = 1.0


def waiter(*, is_screen: bool) -> KeyWaiter:
    """Return what waits; keys are read on a screen whose input is a terminal too."""
    return KeyWaiter(reads_keys=is_screen and sys.stdin is not None and sys.stdin.isatty())


def show_once(source: TopSource, order: TopOrder, *, as_json: bool, clock: Clock = SYSTEM_CLOCK) -> None:
    """Print one look, the second one if the source computes rates. Raises UnreachableError or NotOursError."""
    snapshot = source.look(order)
    if not source.has_rates:
        clock.sleep(_TICK_S)
        snapshot = source.look(order)
    _print(TopState(snapshot), source, order, as_json=as_json)


def show_lines(watch: BrokerWatch, waits: KeyWaiter, source: TopSource, *, as_json: bool) -> None:
    """Print each look until interrupted. Raises NotOursError."""
    printed = 0
    while True:
        waits.wait(_TICK_S)
        state = watch.state
        if state.looks == printed:
            continue
        if state.fatal is not None:
            raise state.fatal
        printed = state.looks
        _print(state, source, watch.order, as_json=as_json)
        if not as_json:
            print()
        sys.stdout.flush()


def show_screen(watch: BrokerWatch, waits: KeyWaiter, source: TopSource) -> None:
    """Draw until q or Ctrl-C. Raises NotOursError."""
    console = Console(markup=False, highlight=False)
    with suppress(KeyboardInterrupt), console.screen(hide_cursor=True) as screen:
        while True:
            state = watch.state
            if state.fatal is not None:
                raise state.fatal
            view = _view(
                state,
                source,
                watch.order,
                is_paused=watch.is_paused,
                has_keys=waits.reads_keys,
                has_blocks=not console.options.ascii_only,
            )
            size = console.size
            screen.update(Group(*lines_of(view, size.width, size.height)))
            if _pressed(waits.wait(_TICK_S), watch):
                return


def _pressed(keys: str, watch: BrokerWatch) -> bool:
    """Handle keys. Returns True to quit."""
    if keys.startswith("\x1b"):  # an arrow or a function key is several characters
        return False
    for key in keys:
        if key in ("q", "Q", "\x04"):
            return True
        if key in ("p", " "):
            watch.is_paused = not watch.is_paused
        elif key in KEYS:
            watch.order = KEYS[key]
    return False


def _print(state: TopState, source: TopSource, order: TopOrder, *, as_json: bool) -> None:
    if as_json:
        if state.snapshot is not None and state.problem is None:
            print_json({source.kind: source.name, **state.snapshot.json()})
        else:
            now_ms = SYSTEM_CLOCK.now_ms()
            problem = {"error": state.problem, "sinceMs": state.problem_since_ms}
            print_json({source.kind: source.name, "type": "unreachable", "atMs": now_ms, **problem})
        return
    view = _view(state if state.problem is None else _without_snapshot(state), source, order)
    width = int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdecimal() else _PLAIN_WIDTH
    for line in lines_of(view, max(width, 1), None):
        print(line.plain.rstrip())


def _without_snapshot(state: TopState) -> TopState:
    return TopState(None, state.problem, state.problem_since_ms, state.looks)


def _view(
    state: TopState,
    source: TopSource,
    order: TopOrder,
    *,
    is_paused: bool = False,
    has_keys: bool = False,
    has_blocks: bool = False,
) -> TopView:
    return TopView(
        address=source.name,
        order=order,
        now_ms=SYSTEM_CLOCK.now_ms(),
        snapshot=state.snapshot,
        problem=state.problem,
        problem_since_ms=state.problem_since_ms,
        is_paused=is_paused,
        has_keys=has_keys,
        has_blocks=has_blocks,
    )
