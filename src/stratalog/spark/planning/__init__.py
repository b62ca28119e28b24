"""On the driver: from options and filters to splits, over both tiers and the brokers."""
