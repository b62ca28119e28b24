"""The append path: validation, offsets, and when a segment rolls."""
