"""What the cluster knows of itself: topics, configurations, features, producer ids; kept in an embedded store."""
