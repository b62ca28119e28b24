from . import metrics as metrics, tier_status_field as tier_status_field
from .remote_sizes import TAG as TAG, decode as decode
from .request_times import QUANTILES as QUANTILES, RequestPart as RequestPart
from .services import BrokerServices as BrokerServices
