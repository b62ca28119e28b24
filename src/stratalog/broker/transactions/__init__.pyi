from .admission import (
    ClientSupport as ClientSupport,
)
from .admission import (
    admit as admit,
)
from .admission import (
    ask_coordinator as ask_coordinator,
)
from .admission import (
    begin_admission as begin_admission,
)
from .coordinator import (
    TransactionCoordinator as TransactionCoordinator,
)
from .markers import (
    Marker as Marker,
)
from .markers import (
    MarkerWriter as MarkerWriter,
)
from .states import (
    STATES_BY_TITLE as STATES_BY_TITLE,
)
from .states import (
    TransactionState as TransactionState,
)
from .transaction import (
    EPOCH_BUMP_FROM as EPOCH_BUMP_FROM,
)
from .transaction import (
    ProducerIdAndEpoch as ProducerIdAndEpoch,
)
from .transaction import (
    Transaction as Transaction,
)
from .wire import (
    code_for as code_for,
)
