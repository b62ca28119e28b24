"""Nothing to import.

Spark looks for data sources in modules named `pyspark_*`, with a worker that then idles until Spark closes its socket:
importing this has it leave without a traceback, as `stratalog.spark.jvm.quiet_workers` explains.

There is no `DefaultSource` here: the source is made known to a session by `stratalog.spark.register`, which also gives
the session what pushes filters and columns down.
"""

from stratalog.spark.jvm.quiet_workers import quiet_this_worker

quiet_this_worker()
