"""Stories of a tiered topic, written so that a test reads as what happens:

    with TieredStory(tmp_path) as story:
        topic = story.create_topic("a", batches_per_segment=1)
        topic.produce("k0", "k1", "k2")                       # one batch each, all of the same size
        topic.expect_remote({0: ["k0"], 1: ["k1"]})           # by base offset; exactly these, once they are there
        topic.expect_earliest_local_offset(2)
        story.bounce()
        topic.expect_consumed(from_offset=1, keys=["k1", "k2"], of_them_remote=1)

The words about a topic are in `tiered_topic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import stratalog
from stratalog.remote.storage.object_store import ObjectStore
from tests.scenarios.tiered_topic import GIB, MIB, VALUE_BYTES, Topic
from tests.support.s3_server import S3Server

__all__ = ["AFTER", "BEFORE", "GIB", "MIB", "VALUE_BYTES", "TieredStory", "Topic"]

#: `metadata.version` levels: the last one without KIP-1333, and the first with it.
BEFORE, AFTER = 31, 32


class TieredStory:
    """One broker with its remote tier in a directory, or in a bucket of `s3`.

    `level` is the metadata.version of its new data directory, `log_dirs` how many log directories it has.
    """

    def __init__(
        self,
        home: Path,
        *,
        level: int = BEFORE,
        settings: Mapping[str, str] | None = None,
        s3: S3Server | None = None,
        log_dirs: int = 1,
    ) -> None:
        self.data_dirs = [home / ("data" if number == 0 else f"data-{number}") for number in range(log_dirs)]
        self.data_dir = self.data_dirs[0]
        url = (home / "store").as_uri() if s3 is None else s3.url(f"stories/{home.name}")
        options = {} if s3 is None else s3.options
        self.store = ObjectStore.from_url(url, options)
        self._settings = {
            "remote.log.storage.system.enable": "true",
            "stratalog.remote.url": url,
            **{f"rsm.config.{name}": value for name, value in options.items()},
            "stratalog.initial.metadata.version": str(level),
            "remote.log.manager.task.interval.ms": "100",
            "log.retention.check.interval.ms": "100",
            "log.initial.task.delay.ms": "50",
            "auto.create.topics.enable": "false",
            **(settings or {}),
        }
        self.broker = self._start()
        self._transactions: dict[str, Producer] = {}

    def _start(self) -> stratalog.Broker:
        return stratalog.Broker(data_dir=self.data_dirs, config=self._settings)

    @property
    def address(self) -> str:
        return self.broker.bootstrap_servers

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self.broker.close()

    def restart(self) -> None:
        """Start it again after it was stopped."""
        self.broker = self._start()

    def bounce(self) -> None:
        """Stop the broker cleanly, and start it again."""
        self.stop()
        self.restart()

    def erase(self, *names: str) -> None:
        """Remove these files of a stopped broker from its log directories."""
        for directory in self.data_dirs:
            for name in names:
                (directory / name).unlink()

    def __enter__(self) -> TieredStory:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()

    def transaction(self, producer: str) -> Producer:
        """The client of this name, in an open transaction."""
        client = self._transactions.get(producer)
        if client is None:
            client = self._transactions[producer] = Producer(
                {
                    "bootstrap.servers": self.address,
                    "linger.ms": 0,
                    "compression.type": "none",
                    "transactional.id": producer,
                }
            )
            client.init_transactions(30)
            client.begin_transaction()
        return client

    def end_transaction(self, producer: str = "one", *, commit: bool) -> None:
        """End what is open in this producer; the markers are in all partitions of it now."""
        client = self._transactions.pop(producer)
        if commit:
            client.commit_transaction(30)
        else:
            client.abort_transaction(30)

    def create_topic(
        self, name: str, *, partitions: int = 1, batches_per_segment: int | None = None, **config: object
    ) -> Topic:
        """Tiered unless `config` says otherwise, nothing expires; everything that is remote leaves the local tier."""
        values = {
            "remote.storage.enable": "true",
            "local.retention.bytes": "1",
            "retention.ms": "-1",
            "file.delete.delay.ms": "0",
            **{key.replace("_", "."): str(value) for key, value in config.items()},
        }
        if batches_per_segment is not None:
            values["segment.bytes"] = str(batches_per_segment * MIB)
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(name, partitions, config=values)])[name].result(30)
        return Topic(self, name)
