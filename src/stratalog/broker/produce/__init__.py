"""How Produce is answered."""
