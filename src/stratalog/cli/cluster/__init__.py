"""`stratalog cluster`: the state of a cluster, one for development, and what a take-over needs."""
