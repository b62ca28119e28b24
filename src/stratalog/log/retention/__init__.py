"""Which segments may go."""
