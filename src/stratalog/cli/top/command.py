"""The command line of `stratalog top`."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from stratalog.cli.options import CommandConfig, JsonLines, OptionalBootstrapServer, bootstrap_from_environment
from stratalog.cli.out import on_terminal
from stratalog.cli.tier import span_ms
from stratalog.cli.top.snapshot import TopOrder, TopSource, WebSource
from stratalog.cli.web_address import WebAddress, login_of_file
from stratalog.errors import UsageError

if TYPE_CHECKING:
    from stratalog.cli.top.watching import BrokerWatch

_WEB_VARIABLE: Final = "STRATALOG_WEB"
_WEB: Final = "127.0.0.1:8080"
_HINT: Final = "a broker without --web, and Kafka's, are shown with --bootstrap-server HOST:PORT"
_INTERVAL_MIN_MS: Final = 200
_INTERVAL_MAX_MS: Final = 3_600_000


def top(
    web: Annotated[
        str | None,
        typer.Option(
            "--web", metavar="H:P", help=f"The web address of a broker.  [default: {_WEB_VARIABLE}, or {_WEB}]"
        ),
    ] = None,
    bootstrap_server: OptionalBootstrapServer = None,
    command_config: CommandConfig = None,
    interval: Annotated[
        str, typer.Option("--interval", "-i", metavar="SPAN", help="How often to look: 500ms, 2s, 1m.")
    ] = "2s",
    sort: Annotated[
        TopOrder, typer.Option("--sort", "-s", help="The order of topics.", case_sensitive=False)
    ] = TopOrder.IN,
    once: Annotated[bool, typer.Option("--once", "-1", help="Look once and exit.")] = False,
    as_json: JsonLines = False,
) -> int:
    """Show a broker live: rates, request times, topics, groups with their lag, the remote tier, disks.

    It asks the broker's web address (stratalog serve --web), as the user of --command-config where a login is needed.
    With --bootstrap-server it uses Kafka's protocol, which also works for Apache Kafka and for brokers without a web
    address. Rates are then the growth of the logs; request times and outgoing bytes are unknown.
    What needs attention comes first. On a terminal, keys change the order of topics, p pauses and q ends; in a
    pipe, each look is a block of plain lines. If the broker goes away, top waits for it.

    Exit code 2: wrong arguments, a server that is not such a broker, or with --once no answer.

    \b
    Examples:
      stratalog top
      stratalog top --web broker1:8080 --sort local
      stratalog top -b localhost:9092
      stratalog top --once --json | jq .requests
    """
    interval_ms = span_ms(interval, "--interval")
    if not _INTERVAL_MIN_MS <= interval_ms <= _INTERVAL_MAX_MS:
        raise UsageError(f"--interval {interval}: expected {_INTERVAL_MIN_MS}ms to 1h")
    from stratalog.cli.top import showing, watching  # loads rich and numpy, which --help does not need

    source = _source(web, bootstrap_server, command_config)
    if once:
        with closing(source):
            showing.show_once(source, sort, as_json=as_json)
        return 0
    is_screen = on_terminal() and not as_json
    with showing.waiter(is_screen=is_screen) as waiter:
        watch: BrokerWatch = watching.BrokerWatch(source, sort, interval_ms / 1000, waiter.wake)
        watch.start()
        try:
            if is_screen:
                showing.show_screen(watch, waiter, source)
            else:
                showing.show_lines(watch, waiter, source, as_json=as_json)
        finally:
            watch.close()
    return 0


def _source(web: str | None, bootstrap_server: str | None, command_config: Path | None) -> TopSource:
    """Return the source that an option names, else the environment, else the default web address."""
    if web is not None and bootstrap_server is not None:
        raise UsageError("give one of --web and --bootstrap-server")
    hint = ""
    if web is None and bootstrap_server is None:
        web = os.environ.get(_WEB_VARIABLE) or None
        bootstrap_server = bootstrap_from_environment() if web is None else None
        if web is None and bootstrap_server is None:
            web, hint = _WEB, _HINT
    if bootstrap_server is not None:
        from stratalog.cli.top.kafka_source import KafkaSource  # loads the protocol, which the web does not need

        return KafkaSource(bootstrap_server, command_config)
    assert web is not None
    return WebSource(WebAddress(web, login_of_file(command_config), timeout_s=10.0), hint)
