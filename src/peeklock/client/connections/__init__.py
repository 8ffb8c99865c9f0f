"""How a client reaches a broker: sockets, tokens, requests, retries."""
