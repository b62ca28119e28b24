"""`stratalog index`: inspect offset and time indexes, check them against their logs, rebuild and convert them."""
