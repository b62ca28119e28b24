from . import (
    metrics as metrics,
)
from . import (
    tier_status_field as tier_status_field,
)
from .remote_sizes import (
    TAG as TAG,
)
from .remote_sizes import (
    decode as decode,
)
from .request_times import (
    QUANTILES as QUANTILES,
)
from .request_times import (
    RequestPart as RequestPart,
)
from .services import (
    BrokerServices as BrokerServices,
)
