"""`stratalog fsck`: an offline check of log directories, and repair of what is derived."""
