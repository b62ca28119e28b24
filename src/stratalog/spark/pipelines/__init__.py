"""Jobs that need Spark's engine, each a module with a function for notebooks and a command.

Jobs that only need executors are in `stratalog.jobs`. `stratalog.spark.executor.SparkExecutor` runs them on Spark.
Importing this package loads nothing. `docs/reference/spark_jobs.md` describes all of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
