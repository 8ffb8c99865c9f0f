"""HTTP: health, metrics, administration, messages, the journal."""
