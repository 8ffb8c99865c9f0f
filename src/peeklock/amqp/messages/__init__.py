"""Messages: sections, annotations and properties."""
