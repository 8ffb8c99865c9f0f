"""Shared access signatures and connection strings, written by hand where a test needs its own."""

import base64
import hashlib
import hmac
import time
from urllib.parse import quote_plus

from tests.wire.entities import ROOT_KEY, ROOT_RULE


def token(
    resource: str, *, rule: str = ROOT_RULE, key: str = ROOT_KEY, lifetime_s: float = 3600
) -> str:
    """Sign a resource URI, as any sender that has no client library would do."""
    expiry = int(time.time() + lifetime_s)
    encoded = quote_plus(resource)
    text = f"{encoded}\n{expiry}".encode()
    signature = base64.b64encode(hmac.new(key.encode(), text, hashlib.sha256).digest())
    return f"SharedAccessSignature sr={encoded}&sig={quote_plus(signature)}&se={expiry}&skn={rule}"


def connection_string(
    port: int | None,
    *,
    rule: str = ROOT_RULE,
    key: str = ROOT_KEY,
    signature: str | None = None,
    entity: str | None = None,
    emulator: bool = True,
) -> str:
    """The one thing a client is told; a ready signature takes the place of rule and key."""
    parts = ["Endpoint=sb://localhost" if port is None else f"Endpoint=sb://localhost:{port}"]
    if signature is None:
        parts += [f"SharedAccessKeyName={rule}", f"SharedAccessKey={key}"]
    else:
        parts += [f"SharedAccessSignature={signature}"]
    if entity is not None:
        parts += [f"EntityPath={entity}"]
    if emulator:
        parts += ["UseDevelopmentEmulator=true"]
    return ";".join(parts) + ";"
