"""The remote tier of one broker: its metadata topic, status, and the switch per topic."""
