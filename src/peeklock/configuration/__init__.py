"""The configuration file: the emulator's Config.json, read into definitions and rules."""
