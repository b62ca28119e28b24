from .locks import (
    held as held,
)
