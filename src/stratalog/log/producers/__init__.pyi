from .producer_entry import BATCHES_KEPT as BATCHES_KEPT, BatchMetadata as BatchMetadata
from .producer_rebuild import rebuild_producer_state as rebuild_producer_state
from .producer_snapshots import SnapshotFile as SnapshotFile
from .producer_state import (
    EXPIRATION_MS_DEFAULT as EXPIRATION_MS_DEFAULT,
    NEVER as NEVER,
    ProducerStateManager as ProducerStateManager,
)
from .producer_updates import AppendOrigin as AppendOrigin, ProducerUpdates as ProducerUpdates
from .producer_verification import VerificationGuard as VerificationGuard
