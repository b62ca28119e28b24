"""A storage plugin whose store fails as `FAULTS` says, for a broker in process:

remote.log.storage.manager.class.name = tests.scenarios.faulty_plugin:FaultyStorage
rsm.config.url = file:///...
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore

#: Of the store of the one broker that runs.
FAULTS = FaultPlan()


class FaultyStorage(ObjectStoreRemoteStorageManager):
    """Ours, on a faulty store, with a short deadline."""

    def __init__(self) -> None:
        super().__init__(ObjectStore.from_url("memory:///"))

    def configure(self, configs: Mapping[str, str]) -> None:
        store = FaultyObjectStore(ObjectStore.from_url(configs["url"]), FAULTS)
        super().__init__(store, deadline_ms=int(configs["deadline.ms"]))
