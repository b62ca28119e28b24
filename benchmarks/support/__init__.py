"""What the benchmarks share: the brokers that are compared, one client for both, rounds and their report."""
