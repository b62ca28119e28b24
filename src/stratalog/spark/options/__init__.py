"""Options of the source: what a query asks for, as Spark's strings. Pure."""
