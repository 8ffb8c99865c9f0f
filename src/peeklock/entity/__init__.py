"""What a queue means: pure decisions; time and chance come in as arguments."""
