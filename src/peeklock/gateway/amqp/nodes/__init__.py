"""The nodes behind links: sending, receiving, tokens, transactions."""
