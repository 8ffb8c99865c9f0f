"""Jobs over the bus: each a plain DataFrame program, run alike here and on a cluster."""
