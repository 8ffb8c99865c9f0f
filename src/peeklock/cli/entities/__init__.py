"""Commands on entities and rules, and on whole namespaces of them."""
