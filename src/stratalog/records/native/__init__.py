"""Native loops over records and batches, compiled by numba at their first use."""
