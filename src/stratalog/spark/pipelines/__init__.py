"""Jobs that need Spark's engine: one module, with a function for notebooks and a command, for each.

Jobs that only need executors are in `stratalog.jobs`, and run here with `stratalog.spark.executor.SparkExecutor`.
Importing this package loads nothing. `docs/reference/spark_jobs.md` has every one of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
