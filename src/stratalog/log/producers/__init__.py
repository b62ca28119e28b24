"""What is known of producers, and its snapshots."""
