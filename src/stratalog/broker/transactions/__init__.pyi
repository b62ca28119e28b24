from .admission import (
    ClientSupport as ClientSupport,
    admit as admit,
    ask_coordinator as ask_coordinator,
    begin_admission as begin_admission,
)
from .coordinator import TransactionCoordinator as TransactionCoordinator
from .markers import Marker as Marker, MarkerWriter as MarkerWriter
from .states import STATES_BY_TITLE as STATES_BY_TITLE, TransactionState as TransactionState
from .transaction import (
    EPOCH_BUMP_FROM as EPOCH_BUMP_FROM,
    ProducerIdAndEpoch as ProducerIdAndEpoch,
    Transaction as Transaction,
)
from .wire import code_for as code_for
