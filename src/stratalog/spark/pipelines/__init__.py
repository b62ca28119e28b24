"""Jobs over whole data directories and buckets, one module each: a function for notebooks, and a command beside it.

What they share: `runner` (tasks over the executors), `progress`, `report` (tables and JSON), `state` (what was done
already).
Importing this package loads nothing. `docs/spark_pipelines.md` has every one of them.
"""
