"""Clients at work while their broker is killed, and what must hold of all that they were answered."""
