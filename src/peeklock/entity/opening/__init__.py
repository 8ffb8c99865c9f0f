"""An opening: records in, living state out, a part at a time."""
