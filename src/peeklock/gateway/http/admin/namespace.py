"""The namespace as administration clients see it (protocol 9.9)."""

from peeklock.clock import Instant
from peeklock.gateway.http.admin.atom import AtomEntry
from peeklock.gateway.http.admin.writing import XmlWriter


def namespace_entry(namespace: str, started_at: Instant) -> AtomEntry:
    """Describe the namespace; it is as old as this run of the broker."""
    writer = XmlWriter()
    writer.instant("CreatedTime", started_at)
    # The tier whose limits and features are these; Premium would promise units.
    writer.text("MessagingSKU", "Standard")
    writer.instant("ModifiedTime", started_at)
    writer.text("Name", namespace)
    writer.text("NamespaceType", "Messaging")
    description = writer.described("NamespaceInfo")
    return AtomEntry("$namespaceinfo", namespace, started_at, started_at, description)
