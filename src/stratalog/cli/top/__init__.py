"""`stratalog top`: a live view of a broker in a terminal."""
