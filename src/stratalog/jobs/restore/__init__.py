"""Topics back from a bucket: the plan, and the files that it writes."""
