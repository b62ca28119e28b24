from .appender import Appender as Appender
from .preparation import AppendRules as AppendRules, BatchFacts as BatchFacts, CheckedRecords as CheckedRecords
from .roll import (
    RELATIVE_OFFSET_MAX as RELATIVE_OFFSET_MAX,
    roll_reason as roll_reason,
    segment_ms_max as segment_ms_max,
    time_waited as time_waited,
)
