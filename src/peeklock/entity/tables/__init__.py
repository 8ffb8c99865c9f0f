"""The tables that tell what was forgotten: places, rows of commands, rows of records."""
