"""The one owner of a bucket prefix."""
