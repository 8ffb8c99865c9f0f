"""The rules of the source, checked on the source itself."""
