"""`stratalog transactions`: what is open, since when, what hangs, and ending it."""
