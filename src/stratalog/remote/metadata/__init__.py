"""What is known of remote segments: the record format of `__remote_log_metadata`, the cache, and the manager."""
