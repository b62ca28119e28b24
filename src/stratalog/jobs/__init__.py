"""What looks at, checks, mends or moves data offline: each job is a plan, work and a result."""
