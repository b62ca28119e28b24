"""On a worker: from a split to Arrow batches."""
