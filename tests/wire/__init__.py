"""Wire tests: the official clients, as they are published, against a broker that really listens."""
