"""How Fetch is answered."""
