"""The broker as a whole: its services, its listeners, and the event loop that they run on."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from stratalog.broker.cluster_membership import ClusterMembership
from stratalog.broker.server.acceptor import Acceptor
from stratalog.broker.server.connection_limits import parse_overrides
from stratalog.broker.server.open_listeners import open_listeners
from stratalog.broker.server.slow_callbacks import slow_callbacks_reported
from stratalog.broker.services import BrokerServices, start_services
from stratalog.broker.storage import BrokerStorage, open_storage
from stratalog.config import LISTENERS, SLOW_CALLBACK_MS, BrokerConfig, broker_advice, joins_cluster, refuse_unkept
from stratalog.errors import DataDirError, UsageError
from stratalog.records import QUICK_BYTES_MAX, batches_at_most
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, join_host_port
from stratalog.wire import warm_up

logger = logging.getLogger(__name__)

StrPath = str | os.PathLike[str]

#: How often to check whether the membership in a cluster has ended.
_WATCH_S = 0.5
_FREE_PORT = "127.0.0.1:0"
#: No wait for members that may join, and few partitions of internal topics to create at their first use.
SETTINGS_FOR_TESTS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "remote.log.metadata.topic.num.partitions": 1,
}
_THIS_MACHINE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class _Instance:
    """An open broker that does not run yet: bound sockets and its storage."""

    def __init__(
        self,
        data_dir: StrPath | Sequence[StrPath] | None,
        listen: str | None,
        config: Mapping[str, object] | None,
        clock: Clock,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        settings = BrokerConfig.from_properties({name: _text(value) for name, value in (config or {}).items()})
        refuse_unkept(settings.properties, plain_only=listen is not None)
        for advice in broker_advice(settings):
            logger.warning("%s", advice)
        dirs = _data_dirs(data_dir, settings)
        parse_overrides(settings)
        # Bound first: a port in use must leave the directories unchanged.
        self.opened = open_listeners(listen, settings)
        try:
            self._storage = _open(dirs, settings, clock, fs)
        except BaseException:
            self.opened.close()
            raise
        self._settings = settings
        self._services: BrokerServices | None = None

    @property
    def services(self) -> BrokerServices:
        assert self._services is not None, "the broker has not started"
        return self._services

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], object]) -> None:
        """Serve until `stop` is set, then close only the sockets.

        Raises DataDirError when the last log directory has failed.
        """
        loop = asyncio.get_running_loop()
        with batches_at_most(QUICK_BYTES_MAX), slow_callbacks_reported(loop, self._settings[SLOW_CALLBACK_MS]):
            await self._run(loop, stop, on_ready)

    async def _run(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event, on_ready: Callable[[], object]) -> None:
        failures: list[str] = []

        def give_up(reason: str) -> None:
            failures.append(reason)
            loop.call_soon_threadsafe(stop.set)

        logs = self._storage.logs
        logs.on_last_dir_failed = give_up
        try:
            self._services = services = start_services(self._storage, self.opened.inter_broker, loop)
            acceptor = Acceptor(services, self.opened, loop)
        except BaseException:
            self.opened.close()
            raise
        try:
            if not logs.dirs.live:  # it may have failed before the listener was set
                raise DataDirError("the broker does not start: all log directories have failed")
            if services.cluster is not None:
                services.cluster.secure(services)
                await asyncio.sleep(0)  # let what it scheduled on the loop take effect
            acceptor.start()
            if services.cluster is not None:
                await services.workers.run(services.cluster.begin, services)
                _watch(services.cluster, give_up, loop)
            on_ready()
            services.workers.submit(warm_up)
            await stop.wait()
            if failures:
                raise DataDirError(f"the broker stops: {failures[0]}")
        finally:
            if services.cluster is not None:
                await services.workers.run(services.cluster.leave)
            acceptor.close()
            await acceptor.drain()

    def close(self, *, clean: bool) -> None:
        """Stop everything and leave the directories flushed."""
        (self._services or self._storage).close(clean=clean)


class Broker:
    """An in-process broker on its own thread.

        with Broker(data_dir=path, listen="127.0.0.1:0") as broker:
            Producer({"bootstrap.servers": broker.bootstrap_servers})

    `data_dir` is one directory or several. Without it, `log.dirs` applies; without that, a temporary directory is made
    and removed by `close`. `listen` is HOST:PORT; port 0 takes a free port. Without it, `listeners` applies, else a
    free port on the loopback interface. `config` holds broker keys under Kafka's names. The broker serves from the
    moment the constructor returns until `close`. Tests pass in time, files and the event loop.

    CPU-bound threads of the process delay each request by up to `sys.getswitchinterval()`, 5 ms by default. That
    setting is process-wide, so it is left alone here. `stratalog serve` sets 0.5 ms; a program that needs short
    latencies can do the same.

    UsageError (port in use, bad address), InvalidConfigError and DataDirError say in one line what is wrong; nothing is
    left running or half-written then.
    """

    def __init__(
        self,
        data_dir: StrPath | Sequence[StrPath] | None = None,
        listen: str | None = None,
        config: Mapping[str, object] | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    ) -> None:
        if listen is None and LISTENERS not in (config or {}):
            listen = _FREE_PORT
        self._temporary: TemporaryDirectory[str] | None = None
        if data_dir is None and not {"log.dirs", "log.dir"} & (config or {}).keys():
            self._temporary = TemporaryDirectory(prefix="stratalog-")
            data_dir = self._temporary.name
        try:
            self._instance = _Instance(data_dir, listen, config, clock, fs)
        except BaseException:
            self._remove_temporary()
            raise
        self._loop_factory = loop_factory or new_event_loop()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="stratalog-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        self._raise_failure()

    @staticmethod
    def testing(config: Mapping[str, object] | None = None, *, clock: Clock = SYSTEM_CLOCK) -> Broker:
        """Start a broker for a test: a temporary directory, a free port, and no delays; `config` overrides settings.

        `stratalog.testing.broker` has one with a controllable clock and injectable faults.
        """
        return Broker(config={**SETTINGS_FOR_TESTS, **(config or {})}, clock=clock)

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic; returns once it is writable. Raises TopicAlreadyExistsError and InvalidTopicError."""
        self.services.topics.create(name, partitions, config)

    def _raise_failure(self) -> None:
        """Clean up and raise if the start failed."""
        if self._failure is not None:
            self._thread.join()
            self._instance.close(clean=False)
            self._remove_temporary()
            raise self._failure

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT of the first listener, for clients on this machine."""
        return _bootstrap_servers(self._instance)

    @property
    def failure(self) -> BaseException | None:
        """The error that stopped the broker, if any: DataDirError when all log directories have failed."""
        return self._failure

    @property
    def services(self) -> BrokerServices:
        """The broker's services, for tests and tools in the same process."""
        return self._instance.services

    def close(self) -> None:
        """Stop serving, flush everything and leave the directories clean. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self._loop.call_soon_threadsafe(self._stop.set)
        except RuntimeError:  # the loop has ended by a failure
            logger.debug("The broker's loop has already ended")
        self._thread.join()
        self._instance.close(clean=self._failure is None)
        self._remove_temporary()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._failure = error
            if isinstance(error, DataDirError):
                logger.error("%s", error)
            elif self._ready.is_set():
                logger.exception("The broker stopped")
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        await self._instance.run(self._stop, self._ready.set)


async def serve(
    data_dir: StrPath | Sequence[StrPath] | None = None,
    listen: str | None = None,
    config: Mapping[str, object] | None = None,
    *,
    stop: asyncio.Event,
    on_ready: Callable[[str], object] = lambda _: None,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Serve on the running loop until `stop` is set, then close cleanly.

    `on_ready` is called with the bootstrap address once clients are answered. Arguments and errors as for `Broker`.
    """
    instance = _Instance(data_dir, listen, config, clock)
    clean = False
    try:
        await instance.run(stop, lambda: on_ready(_bootstrap_servers(instance)))
        clean = True
    finally:
        instance.close(clean=clean)


def new_event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the factory of the fastest installed event loop."""
    try:
        import uvloop  # not made for every system
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _bootstrap_servers(instance: _Instance) -> str:
    bound = instance.opened.all[0].bound
    return join_host_port(_THIS_MACHINE.get(bound.host, bound.host), bound.port)


def _open(data_dirs: list[Path], config: BrokerConfig, clock: Clock, fs: FileSystem) -> BrokerStorage:
    if not joins_cluster(config.properties):
        return open_storage(data_dirs, config, clock=clock, fs=fs)
    # Imported here for start-up time: a broker without a cluster does not need it.
    from stratalog.broker.cluster import open_cluster_storage

    return open_cluster_storage(data_dirs, config, clock=clock)


def _watch(cluster: ClusterMembership, give_up: Callable[[str], object], loop: asyncio.AbstractEventLoop) -> None:
    """Stop the broker when its cluster membership has failed."""
    if cluster.failure is not None:
        give_up(str(cluster.failure))
    else:
        loop.call_later(_WATCH_S, _watch, cluster, give_up, loop)


def _data_dirs(data_dir: StrPath | Sequence[StrPath] | None, config: BrokerConfig) -> list[Path]:
    if data_dir is None:
        dirs = [Path(name) for name in config["log.dirs"] or config["log.dir"]]
    elif isinstance(data_dir, str | os.PathLike):
        dirs = [Path(data_dir)]
    else:
        dirs = [Path(name) for name in data_dir]
    if not dirs:
        raise UsageError("no data directory: give one (--data-dir), or set log.dirs")
    for path in dirs:
        if "\0" in str(path):
            raise UsageError(f"data directory {str(path)!r} contains a NUL character")
    return dirs


def _text(value: object) -> str | None:
    """Return a configuration value as written in a properties file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None else str(value)
