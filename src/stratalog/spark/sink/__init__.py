"""`df.write.format("stratalog")` and `writeStream`: rows become whole segments, published in one step."""
