"""What a queue means, shown without a clock, a socket or a disk."""
