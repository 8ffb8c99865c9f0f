"""An issuer of JSON web tokens, as small as one can be."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from peeklock.auth.issuer import TokenIssuer
from peeklock.gateway.tokens.issuers import Issuers

ISSUER = "https://issuer.example/tenant/"
AUDIENCE = "https://servicebus.azure.net"
ROLES = {"Manage": "Azure Service Bus Data Owner"}
ROLES |= {"Send": "Azure Service Bus Data Sender", "Listen": "Azure Service Bus Data Receiver"}


def believing(local: LocalIssuer) -> Issuers:
    """Somebody who believes it."""
    with TemporaryDirectory() as directory:
        Path(directory, "keys.json").write_bytes(local.published())
        issuers = Issuers(Path(directory))
        believed = (TokenIssuer(local.issuer, keys_file="keys.json"),)
        issuers.hold(believed, issuers.load(believed))
    return issuers


class LocalIssuer:
    """Signs with the newest of its keys, and publishes those that it has."""

    def __init__(self, issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self.keys: dict[str, EllipticCurvePrivateKey] = {}
        self.rotate("first")

    def rotate(self, name: str) -> None:
        self.keys[name] = ec.generate_private_key(ec.SECP256R1())

    def published(self, *more: dict[str, Any]) -> bytes:
        """The key set."""
        keys: list[dict[str, Any]] = list(more)
        for name, key in self.keys.items():
            public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
            keys.append({**public, "kid": name, "use": "sig"})
        return json.dumps({"keys": keys}).encode()

    def token(self, now_ms: int, *rights: str, kid: str = "", **claims: Any) -> str:
        """A token that lasts for an hour, with the service's roles for these rights."""
        name = kid or list(self.keys)[-1]
        now = now_ms // 1000
        said = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "oid": "somebody",
            "nbf": now - 5,
            "exp": now + 3600,
            "roles": [ROLES[right] for right in rights],
        }
        kept = {key: value for key, value in (said | claims).items() if value is not None}
        return jwt.encode(kept, self.keys[name], "ES256", headers={"kid": name})
