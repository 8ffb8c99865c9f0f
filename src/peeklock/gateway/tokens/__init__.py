"""JSON web tokens: issuers and the keys by which they are checked."""
