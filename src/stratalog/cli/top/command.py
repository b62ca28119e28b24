"""The command line of `stratalog top`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from stratalog.cli.options import CommandConfig, JsonLines
from stratalog.cli.out import on_terminal
from stratalog.cli.tier import span_ms
from stratalog.cli.top.snapshot import TopOrder
from stratalog.cli.web_address import WebAddress, login_of_file
from stratalog.errors import UsageError

if TYPE_CHECKING:
    from stratalog.cli.top.watching import BrokerWatch

_WEB_VARIABLE: Final = "STRATALOG_WEB"
_INTERVAL_MIN_MS: Final = 200
_INTERVAL_MAX_MS: Final = 3_600_000


def top(
    web: Annotated[
        str, typer.Option("--web", metavar="H:P", envvar=_WEB_VARIABLE, help="The web address of a broker.")
    ] = "127.0.0.1:8080",
    command_config: CommandConfig = None,
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="SPAN", help="How often to look: 500ms, 2s, 1m.")
    ] = "2s",
    sort: Annotated[
        TopOrder, typer.Option("--sort", "-s", help="What topics are sorted by.", case_sensitive=False)
    ] = TopOrder.IN,
    once: Annotated[bool, typer.Option("--once", "-1", help="Look once, and end.")] = False,
    as_json: JsonLines = False,
) -> int:
    """Show a broker live: rates, request times, topics, groups with their lag, the remote tier, disks.

    It asks the broker's web address (stratalog serve --web), as the user of --command-config where a login is needed,
    and shows first what needs attention. On a terminal, keys change the order of topics, p pauses and q ends; in a
    pipe, each look is a block of plain lines. A broker that goes away is waited for.

    Exit code 2: wrong arguments, no web address of stratalog, or with --once no answer.

    \b
    Examples:
      stratalog top
      stratalog top --web broker1:8080 --sort local
      stratalog top --once --json | jq .requests
    """
    interval_ms = span_ms(interval, "--interval")
    if not _INTERVAL_MIN_MS <= interval_ms <= _INTERVAL_MAX_MS:
        raise UsageError(f"--interval {interval}: expected {_INTERVAL_MIN_MS}ms to 1h")
    address = WebAddress(web, login_of_file(command_config), timeout_s=10.0)
    from stratalog.cli.top import showing, watching  # they load rich and numpy, which --help can do without

    if once:
        showing.show_once(address, sort, as_json=as_json)
        return 0
    is_screen = on_terminal() and not as_json
    with showing.waiter(is_screen=is_screen) as waiter:
        watch: BrokerWatch = watching.BrokerWatch(address, sort, interval_ms / 1000, waiter.wake)
        watch.start()
        try:
            if is_screen:
                showing.show_screen(watch, waiter, address.url)
            else:
                showing.show_lines(watch, waiter, address.url, as_json=as_json)
        finally:
            watch.close()
    return 0
