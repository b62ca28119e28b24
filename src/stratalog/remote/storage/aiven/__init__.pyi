from . import (
    data_keys as data_keys,
)
from . import (
    keys as keys,
)
from . import (
    manifest as manifest,
)
from .data_keys import (
    DataKeys as DataKeys,
)
