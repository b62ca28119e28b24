"""One partition directory: segments, their indexes, producer state, leader epochs, recovery and retention."""
