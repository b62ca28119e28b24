"""The stream source: `spark.readStream.format("stratalog")`."""
