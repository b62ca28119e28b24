"""`stratalog tier`: what lies in a bucket of tiered topics, what is wrong with it, and setting it right."""
