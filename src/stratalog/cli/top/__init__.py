"""`stratalog top`: a broker as it is now, in a terminal."""
