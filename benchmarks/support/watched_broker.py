"""`stratalog` with every callback of its loop in the log that takes longer than it may, not one a second."""

from __future__ import annotations

from stratalog.broker.server import slow_callbacks
from stratalog.cli.main import main

if __name__ == "__main__":
    slow_callbacks._LINE_INTERVAL_S = 0.0  # type: ignore[misc]
    main()
