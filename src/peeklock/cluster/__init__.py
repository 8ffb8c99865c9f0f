"""Several brokers as one: who has which store, and the ways between them."""
