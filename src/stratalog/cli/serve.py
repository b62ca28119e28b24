"""`stratalog serve`: a broker in the foreground until a signal ends it."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from stratalog.cli.failures import failure_of, shows_tracebacks
from stratalog.cli.options import key_values
from stratalog.config import ADVERTISED, LISTENERS, joins_cluster, parse_properties, refuse_unkept
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.util import (
    descriptors_max,
    log_events,
    long_lived,
    own_garbage,
    raise_descriptor_limit,
    tell_service_manager,
)

if TYPE_CHECKING:
    from stratalog.broker.server import Broker
    from stratalog.config import BrokerConfig
    from stratalog.web import WebServer

logger = logging.getLogger(__name__)

#: Where clients are listened for unless an option, `--set` or the file says it.
_LISTEN = "127.0.0.1:9092"
#: The log of decisions on access, which is kept whole.
_AUDIT = "kafka.authorizer.logger"
#: With fewer file descriptors not even what is wrong can always be said. What clients and logs need comes on top.
_DESCRIPTORS_MIN: Final = 32
#: How soon a broker that ended by itself ends the command too.
_CHECK_SECONDS = 0.5
#: How long another thread may keep the interpreter from the broker's. Python's 5 ms are added to each request by a
#: scrape of /metrics; this is ten times less, and costs nothing measurable.
_SWITCH_SECONDS = 0.0005


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"


def serve(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Directory for all data. It is created if it does not exist.  [default: log.dirs]"),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            help="Address for Kafka clients. Port 0 takes a free port.  [default: listeners, or 127.0.0.1:9092]",
            metavar="H:P",
        ),
    ] = None,
    web: Annotated[
        str,
        typer.Option(
            help="Address of the console and of /metrics, or 'off'. Port 0 takes a free port.",
            metavar="H:P|off",
        ),
    ] = "off",
    config: Annotated[
        Path | None,
        typer.Option(
            help="A server.properties file, as for Kafka. A safety setting that is not supported stops the start."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set one configuration key.", metavar="KEY=VALUE"),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more than warnings and errors.")] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Form of the log on stderr, one line an event.")
    ] = LogFormat.TEXT,
) -> int:
    """Serve a data directory to Kafka clients.

    The command prints `ready broker=HOST:PORT web=URL` when clients can connect. SIGTERM or SIGINT stops it cleanly.
    With --log-format json, an error that prevents the start or ends the broker is an event too, of level FATAL.

    \b
    Examples:
      stratalog serve --data-dir /var/lib/stratalog
      stratalog serve --data-dir D --listen 127.0.0.1:0 --set log.retention.hours=24
      stratalog serve --data-dir D --web 127.0.0.1:8080
      stratalog serve --config server.properties
    """
    with log_events(log_format.value, logging.INFO if verbose else logging.WARNING, every=(_AUDIT,)):
        # What was denied is of interest without more than warnings of the rest; with --verbose too.
        logging.getLogger(_AUDIT).setLevel(logging.INFO)
        try:
            return _serve(data_dir, listen, web, config, set_ or [])
        except Exception as error:
            if log_format is LogFormat.TEXT:
                raise  # it becomes the one line of every command
            failure = failure_of(error)
            logger.critical("%s", failure.line, exc_info=shows_tracebacks())
            return failure.exit_code


def _serve(data_dir: Path | None, listen: str | None, web: str, config: Path | None, assignments: list[str]) -> int:
    """Serve until a signal comes."""
    properties = _properties(config, assignments, listen)
    if data_dir is None and not (properties.get("log.dirs") or properties.get("log.dir")):
        raise UsageError("Missing option '--data-dir', or log.dirs in a --config FILE (see stratalog serve --help)")
    raise_descriptor_limit()
    descriptors = descriptors_max()
    if descriptors is not None and descriptors < _DESCRIPTORS_MIN:
        raise UsageError(
            f"the limit of open files is {descriptors}, and a broker needs at least {_DESCRIPTORS_MIN}: raise it"
            " (ulimit -n, LimitNOFILE)"
        )
    sys.setswitchinterval(_SWITCH_SECONDS)  # of the whole process, which is the broker's here
    if listen is None and not properties.get(LISTENERS):
        listen = _LISTEN
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())

    if joins_cluster(properties) and data_dir is not None:
        properties["log.dirs"] = str(data_dir)
    with (
        own_garbage(),
        _web_server(web) as pages,
        _broker(data_dir, listen, properties, config) as broker,
    ):
        if pages is not None:
            pages.start(broker.services, schemas_of(broker.services.config))
        url = "off" if pages is None else pages.url
        if broker.failure is not None:
            raise broker.failure
        print(f"ready broker={broker.bootstrap_servers} web={url}", flush=True)
        tell_service_manager("READY=1")
        while not stopped.wait(_CHECK_SECONDS):
            if broker.failure is not None:
                raise broker.failure
        tell_service_manager("STOPPING=1")
    return 0


def _broker(data_dir: Path | None, listen: str | None, properties: dict[str, str], file: Path | None) -> Broker:
    """Start the broker. An error of the configuration names the file, if there is one."""
    try:
        with long_lived():
            from stratalog.broker.server import Broker  # --help does without; a third of a second of code and tables

            return Broker(data_dir=data_dir, listen=listen, config=properties)
    except InvalidConfigError as error:
        if file is None:
            raise
        raise InvalidConfigError(f"{file}: {error}") from error


def schemas_of(config: BrokerConfig) -> Callable[[bytes], Any] | None:
    """Return what reads records by their schemas, if a registry is named."""
    url = config["stratalog.web.schema.registry"]
    if url is None:
        return None
    from stratalog.cli.schema_registry import SchemaRegistry  # brokers without a registry do without

    return SchemaRegistry(str(url)).decoded


@contextmanager
def _web_server(address: str) -> Iterator[WebServer | None]:
    """Bind the web server without starting it: an address that cannot be had is reported before the data is touched."""
    if address == "off":
        yield None
        return
    try:
        from stratalog.broker.server import parse_address  # as in `_broker`
        from stratalog.web import WebServer
    except ImportError as error:
        raise UsageError(f"--web {address} needs more packages: pip install 'stratalog[web]' ({error})") from error
    with WebServer(parse_address(address, "--web")) as server:
        yield server


def _properties(config: Path | None, assignments: list[str], listen: str | None) -> dict[str, str]:
    """Return the settings of the file, overridden by the command line. Raises UsageError for unsupported ones."""
    in_file: dict[str, str] = {}
    if config is not None:
        try:
            text = config.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{config} is not a text file in UTF-8 (byte {error.start})") from error
        in_file = parse_properties(text, str(config))
    assigned = {key.strip(): value.strip() for key, value in key_values("--set", assignments).items()}
    properties = {**in_file, **assigned}
    # Also when --listen is given: who asks for TLS in the file must not be served without it by chance.
    refuse_unkept(properties, lambda key: "--set" if key in assigned else str(config), plain_only=listen is not None)
    if listen is not None and ADVERTISED in in_file and ADVERTISED not in assigned:
        logger.warning(
            "%s: %s=%s is ignored because of --listen; use --set %s=... instead",
            config,
            ADVERTISED,
            properties.pop(ADVERTISED),
            ADVERTISED,
        )
    return properties
