"""The group `stratalog spark`: one job a module, one line each below. The modules load pyspark only when they run."""

from __future__ import annotations

from stratalog.cli.options import command_group
from stratalog.cli.spark.export import export
from stratalog.cli.spark.retention import retention

app = command_group()


@app.callback()
def spark() -> None:
    """Jobs over whole data directories and buckets, on Spark: this machine's cores, a cluster, or Spark Connect.

    \b
    Examples:
      stratalog spark audit --path /var/lib/stratalog --remote s3://bucket/tiered
      stratalog spark index verify --path /var/lib/stratalog --json
      stratalog spark stats --remote s3://bucket/tiered --topic orders --master spark://host:7077
    """


app.command()(export)
app.command("retention")(retention)
