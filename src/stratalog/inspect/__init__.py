"""What lies in data directories and buckets, seen from outside. Looks, never changes."""
