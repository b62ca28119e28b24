"""The check of log directories that no broker serves, and the repair of what follows from the log."""
