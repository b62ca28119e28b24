from .fate import (
    Fate as Fate,
)
from .fate import (
    Rhythm as Rhythm,
)
from .forecast import forecast_local as forecast_local
from .remote_forecast import forecast_remote as forecast_remote
from .remote_survey import (
    KnownOffsets as KnownOffsets,
)
from .remote_survey import (
    config_of as config_of,
)
from .result import (
    PartitionForecast as PartitionForecast,
)
from .result import (
    RetentionForecast as RetentionForecast,
)
from .run import (
    forecast_retention as forecast_retention,
)
from .words import (
    span_text as span_text,
)
from .words import (
    time_text as time_text,
)
