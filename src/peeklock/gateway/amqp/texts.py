"""Sentences that clients know by heart."""

from peeklock.auth.rights import LISTEN, SEND, Rights


def entity_not_found(host: str, path: str) -> str:
    """Say that there is no such entity; the JavaScript client looks for these very words."""
    return f"The messaging entity 'sb://{host}/{path}' could not be found."


def unauthorized(wanted: Rights, host: str, path: str) -> str:
    """Say which right is missing."""
    claims = {SEND: "'Send'", LISTEN: "'Listen'"}.get(wanted, "'Send' or 'Listen'")
    return (
        f"Unauthorized access. {claims} claim(s) are required to perform this operation. "
        f"Resource: 'sb://{host}/{path}'."
    )


def entity_disabled(namespace: str, path: str) -> str:
    """Say that the entity takes or gives no messages at present."""
    return f"Messaging entity '{namespace}:Queue:{path}' is currently disabled."
