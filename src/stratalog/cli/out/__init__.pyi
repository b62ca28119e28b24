from .findings import (
    FindingsPrinter as FindingsPrinter,
)
from .findings import (
    FindingText as FindingText,
)
from .findings import (
    severity_counts as severity_counts,
)
from .text import (
    counted as counted,
)
from .text import (
    notice as notice,
)
from .text import (
    on_terminal as on_terminal,
)
from .text import (
    print_json as print_json,
)
from .text import (
    print_rows as print_rows,
)
from .text import (
    print_tabbed as print_tabbed,
)
