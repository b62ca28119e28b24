"""`stratalog doctor`: what is wrong with directories, brokers and a bucket, most urgent first."""
