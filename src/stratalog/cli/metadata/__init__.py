"""`stratalog metadata`: the metadata of a broker as a document, to keep it and to bring it back."""
