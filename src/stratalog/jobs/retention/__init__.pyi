from .fate import Fate as Fate, Rhythm as Rhythm
from .forecast import forecast_local as forecast_local
from .remote_forecast import forecast_remote as forecast_remote
from .remote_survey import KnownOffsets as KnownOffsets, config_of as config_of
from .result import PartitionForecast as PartitionForecast, RetentionForecast as RetentionForecast
from .run import forecast_retention as forecast_retention
from .words import span_text as span_text, time_text as time_text
