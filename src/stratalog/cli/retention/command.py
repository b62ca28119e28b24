"""The group `stratalog retention`."""

from __future__ import annotations

from stratalog.cli.options import command_group
from stratalog.cli.retention.explain import explain

app = command_group()


@app.callback()
def retention() -> None:
    """Why records are still there, when they go, and what other settings would change.

    \b
    Example:
      stratalog retention explain orders --data-dir /var/lib/stratalog --what-if retention.ms=3600000
    """


app.command("explain")(explain)
