"""Messages of formats 0 and 1."""
