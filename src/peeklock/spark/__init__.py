"""The bus in Spark: a data source and sink written with PySpark, and the jobs that use them."""
