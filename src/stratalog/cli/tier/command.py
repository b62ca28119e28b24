"""The group `stratalog tier`: one sub-command a module, one line each in `app`."""

from __future__ import annotations

import typer

from stratalog.cli.tier.audit import audit
from stratalog.cli.tier.ls import ls
from stratalog.cli.tier.repair import repair
from stratalog.cli.tier.restore import restore
from stratalog.cli.tier.stat import stat
from stratalog.cli.tier.status import status

app = typer.Typer(
    add_completion=False, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)


@app.callback()
def tier() -> None:
    """Look into the bucket of tiered topics, check it, and set it right. No broker is needed.

    \b
    Examples:
      stratalog tier ls s3://bucket/tiered
      stratalog tier audit s3://bucket/tiered --data-dir /var/lib/stratalog
    """


app.command("ls")(ls)
app.command("stat")(stat)
app.command("status")(status)
app.command("audit")(audit)
app.command("repair")(repair)
app.command("restore")(restore)
