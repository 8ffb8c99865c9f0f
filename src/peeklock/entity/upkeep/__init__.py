"""What keeps a partition small and right: checkpoints, relocation, journal facts, invariants."""
