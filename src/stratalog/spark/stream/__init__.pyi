from .consumer_lag import (
    Lag as Lag,
)
from .consumer_lag import (
    lag as lag,
)
from .options import (
    StreamOptions as StreamOptions,
)
from .options import (
    parse_for_either as parse_for_either,
)
from .reader import (
    StreamReader as StreamReader,
)
