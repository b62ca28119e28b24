"""Values that planning, reading and streams share: where bytes lie, segments, and what one task reads."""
