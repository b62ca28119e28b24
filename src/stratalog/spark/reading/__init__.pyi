from .prefetch import run_ahead as run_ahead
from .rows import arrow_schema as arrow_schema, checked_columns as checked_columns, spark_schema as spark_schema
from .split_rows import read_rows as read_rows, settle_worker as settle_worker
