"""The manager of the tier and its tasks: copy, expiration, deletion, quotas, status."""
