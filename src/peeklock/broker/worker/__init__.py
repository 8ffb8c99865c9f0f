"""The owner of one partition: rounds of decide and store, and what belongs to them."""
