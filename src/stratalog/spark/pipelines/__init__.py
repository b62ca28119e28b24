"""Jobs over whole data directories and buckets, one module each: a function for notebooks, and a command beside it.

What they share: `runner` (tasks over the executors), `progress`, `report` (tables and JSON), `state` (what was done
already).
Importing this package loads nothing. `docs/reference/spark_jobs.md` has every one of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
