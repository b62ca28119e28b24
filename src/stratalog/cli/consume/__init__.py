"""`stratalog consume`: records of topics, as text, as bytes or as JSON lines."""
