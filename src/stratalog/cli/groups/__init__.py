"""`stratalog groups`: what groups there are, what they read and how far they are, and setting them elsewhere."""
