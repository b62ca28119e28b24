"""What retention will do and when, from facts alone."""
