"""The group `stratalog spark`: one job a module, one line each below. The modules load pyspark only when they run."""

from __future__ import annotations

from stratalog.cli.options import command_group
from stratalog.cli.spark.audit import audit
from stratalog.cli.spark.compact import compact
from stratalog.cli.spark.export import export
from stratalog.cli.spark.index import app as index
from stratalog.cli.spark.ingest import ingest
from stratalog.cli.spark.package import package
from stratalog.cli.spark.read import read
from stratalog.cli.spark.restore import restore
from stratalog.cli.spark.retention import retention
from stratalog.cli.spark.stats import stats

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
app.command("audit")(audit)
app.command()(ingest)
app.command()(compact)
app.add_typer(index, name="index")
app.command("restore")(restore)
app.command("package")(package)
app.command("stats")(stats)
app.command("read")(read)
