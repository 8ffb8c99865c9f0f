"""Records as bytes: what a chunk is, and how each kind of record rests."""
