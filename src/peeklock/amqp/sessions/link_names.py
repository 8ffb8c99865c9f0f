"""The links of a connection by name, because a name is taken once per direction [2.6.1]."""

from typing import final

from peeklock.amqp.sessions.link import Link


@final
class LinkNames:
    """Who is there; `count` also has the links that wait for the peer's last word."""

    __slots__ = ("count", "names")

    def __init__(self) -> None:
        self.names: dict[tuple[int, str], Link] = {}
        self.count = 0

    def add(self, link: Link) -> None:
        """Count a link and note its name."""
        self.count += 1
        self.names[(link.role, link.name)] = link

    def find(self, role: int, name: str) -> Link | None:
        """Find the living link of this name and role."""
        return self.names.get((role, name))

    def free_name(self, link: Link) -> None:
        """Free the name of a link that goes away."""
        key = (link.role, link.name)
        if self.names.get(key) is link:
            del self.names[key]

    def links(self) -> list[Link]:
        """List the living links."""
        return list(self.names.values())
