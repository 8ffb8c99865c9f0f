"""Where records rest: durable, ordered, fenced; no locks, no credit, no broker meaning."""
