"""`stratalog serve`: a broker in the foreground until a signal ends it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stratalog.config.broker import parse_properties
from stratalog.errors import UsageError

if TYPE_CHECKING:
    from stratalog.web.server import WebServer

#: How soon a broker that ended by itself ends the command too.
_CHECK_SECONDS = 0.5
#: How long another thread may keep the interpreter from the broker's. Python's 5 ms is what each request waits beside a
#: scraper of /metrics; this is ten times less, and costs nothing measurable.
_SWITCH_SECONDS = 0.0005


def serve(
    data_dir: Annotated[Path, typer.Option(help="Where everything is kept; made when it is not there.")],
    listen: Annotated[
        str, typer.Option(help="host:port for Kafka clients; port 0 takes a free one.", metavar="H:P")
    ] = ("127.0.0.1:9092"),
    web: Annotated[
        str,
        typer.Option(
            help="host:port of the status page and of /metrics (port 0 takes a free one), or 'off'.",
            metavar="H:P|off",
        ),
    ] = "off",
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
      stratalog serve --data-dir D --web 127.0.0.1:8080
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    sys.setswitchinterval(_SWITCH_SECONDS)  # of the whole process, which is the broker's here
    properties = _properties(config, set_ or [])
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    from stratalog.broker.server import Broker

    with (
        _web_server(web) as pages,
        Broker(data_dir=data_dir, listen=listen, config=properties) as broker,
    ):
        if pages is not None:
            pages.start(broker.state)
        url = "off" if pages is None else pages.url
        print(f"ready broker={broker.bootstrap_servers} web={url}", flush=True)
        while not stopped.wait(_CHECK_SECONDS):
            if broker.failure is not None:
                raise broker.failure
    return 0


@contextmanager
def _web_server(address: str) -> Iterator[WebServer | None]:
    """The web server, bound but not started: an address that cannot be had is known before the data is touched."""
    if address == "off":
        yield None
        return
    try:
        from stratalog.broker.listen_address import parse_address
        from stratalog.web.server import WebServer
    except ImportError as error:
        raise UsageError(
            f"--web {address} needs more packages: pip install 'stratalog[web]' ({error})"
        ) from error
    with WebServer(parse_address(address, "--web")) as server:
        yield server


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
