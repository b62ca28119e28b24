from .findings import FindingsPrinter as FindingsPrinter, FindingText as FindingText, severity_counts as severity_counts
from .text import (
    counted as counted,
    notice as notice,
    on_terminal as on_terminal,
    print_json as print_json,
    print_rows as print_rows,
    print_tabbed as print_tabbed,
)
