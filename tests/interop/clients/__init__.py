"""Apache Kafka beside ours: each reads what the other wrote, and its clients talk to our broker."""
