"""`stratalog serve`: a broker in the foreground until a signal ends it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from stratalog.config.broker import parse_properties
from stratalog.errors import UsageError

#: How soon a broker that ended by itself ends the command too.
_CHECK_SECONDS = 0.5


def serve(
    data_dir: Annotated[Path, typer.Option(help="Where everything is kept; made when it is not there.")],
    listen: Annotated[
        str, typer.Option(help="host:port for Kafka clients; port 0 takes a free one.", metavar="H:P")
    ] = ("127.0.0.1:9092"),
    web: Annotated[str, typer.Option(help="host:port of the web page, or 'off'.", metavar="H:P|off")] = "off",
    config: Annotated[Path | None, typer.Option(help="A server.properties of Kafka's kind.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="One configuration key; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log more than what needs attention.")
    ] = False,
) -> int:
    """Serve a data directory to Kafka clients.

    Prints `ready broker=HOST:PORT web=URL` once it serves. SIGTERM or SIGINT ends it cleanly.

    \b
    Examples:
      stratalog serve --data-dir /var/lib/stratalog
      stratalog serve --data-dir D --listen 127.0.0.1:0 --set log.retention.hours=24
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    properties = _properties(config, set_ or [])
    if web != "off":
        raise UsageError(
            f"--web {web}: this version has no web page yet; leave the option away or say --web off"
        )
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    from stratalog.broker.server import Broker

    with Broker(data_dir=data_dir, listen=listen, config=properties) as broker:
        print(f"ready broker={broker.bootstrap_servers} web={web}", flush=True)
        while not stopped.wait(_CHECK_SECONDS):
            if broker.failure is not None:
                raise broker.failure
    return 0


def _properties(config: Path | None, assignments: list[str]) -> dict[str, str]:
    """What the file says, and on top of it what the command line says."""
    properties: dict[str, str] = {}
    if config is not None:
        try:
            text = config.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{config} is not a text file in UTF-8 (byte {error.start})") from error
        properties.update(parse_properties(text, str(config)))
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator or not name.strip():
            raise UsageError(f"--set {assignment}: expected KEY=VALUE")
        properties[name.strip()] = value.strip()
    return properties
