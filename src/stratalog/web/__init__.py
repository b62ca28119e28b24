"""What a broker shows on its web address: metrics, the state of the tiers, and a page for people."""
