"""Configured limits of threads and bandwidth of a broker's remote tier."""

from __future__ import annotations

from stratalog.config import BrokerConfig
from stratalog.remote.tier.quota import RateQuota
from stratalog.util import Clock, WorkerPool

_MANAGER = "remote.log.manager"


class TierLimits:
    """Worker pools and quotas, which `reconfigure` changes at run time. Thread-safe."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.copy_quota = _quota("copy", config, clock)
        self.fetch_quota = _quota("fetch", config, clock)
        self.copiers = WorkerPool("remote-log-copier", config[f"{_MANAGER}.copier.thread.pool.size"])
        self.expirers = WorkerPool("remote-log-expiration", config[f"{_MANAGER}.expiration.thread.pool.size"])
        self.followers = WorkerPool("remote-log-follower", config[f"{_MANAGER}.follower.thread.pool.size"])
        #: The pool for client reads: see `broker.fetch.remote_reads`.
        self.readers = WorkerPool(
            "remote-log-reader",
            config["remote.log.reader.threads"],
            pending_max=config["remote.log.reader.max.pending.tasks"],
        )

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply the settings that can change at run time."""
        self.copy_quota.bytes_per_second = config[f"{_MANAGER}.copy.max.bytes.per.second"]
        self.fetch_quota.bytes_per_second = config[f"{_MANAGER}.fetch.max.bytes.per.second"]
        self.copiers.resize(config[f"{_MANAGER}.copier.thread.pool.size"])
        self.expirers.resize(config[f"{_MANAGER}.expiration.thread.pool.size"])
        self.followers.resize(config[f"{_MANAGER}.follower.thread.pool.size"])
        self.readers.resize(config["remote.log.reader.threads"])

    def close(self) -> None:
        for pool in (self.copiers, self.expirers, self.followers, self.readers):
            pool.close()


def _quota(what: str, config: BrokerConfig, clock: Clock) -> RateQuota:
    prefix = f"{_MANAGER}.{what}"
    return RateQuota(
        config[f"{prefix}.max.bytes.per.second"],
        config[f"{prefix}.quota.window.num"],
        config[f"{prefix}.quota.window.size.seconds"],
        clock,
    )
