from .read import (
    read_rows as read_rows,
)
from .read import (
    source_options as source_options,
)
