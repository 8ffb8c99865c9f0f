"""Sessions and links: windows, credit, deliveries and their settlement."""
