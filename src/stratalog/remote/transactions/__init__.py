"""Objects that nobody sees until one step makes all of them visible."""
