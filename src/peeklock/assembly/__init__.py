"""Parts of a broker that depend on how it was asked to run: its stores, its ports, its nodes."""
