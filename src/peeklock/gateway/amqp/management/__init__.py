"""The node `$management`: requests, operations, answers."""
