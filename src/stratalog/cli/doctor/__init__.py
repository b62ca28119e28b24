"""`stratalog doctor`: finds problems of directories, brokers and a bucket, most urgent first."""
