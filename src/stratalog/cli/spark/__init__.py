"""`stratalog spark`: jobs over whole data directories and buckets."""
