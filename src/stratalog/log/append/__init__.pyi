from .appender import (
    Appender as Appender,
)
from .preparation import (
    AppendRules as AppendRules,
)
from .preparation import (
    BatchFacts as BatchFacts,
)
from .preparation import (
    CheckedRecords as CheckedRecords,
)
from .roll import (
    RELATIVE_OFFSET_MAX as RELATIVE_OFFSET_MAX,
)
from .roll import (
    roll_reason as roll_reason,
)
from .roll import (
    segment_ms_max as segment_ms_max,
)
from .roll import (
    time_waited as time_waited,
)
