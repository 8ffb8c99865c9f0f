"""What is about the whole broker, over HTTP: whoever manages the first namespace looks after it."""

from peeklock.gateway.http import reload as reload_node
from peeklock.gateway.http import stores as stores_node
from peeklock.gateway.http.operator import backups as backups_node
from peeklock.gateway.http.operator import connected
from peeklock.gateway.http.operator.backups import Backups, BackupsNode
from peeklock.gateway.http.operator.connected import Connected, ConnectionsNode
from peeklock.gateway.http.reload import ReloadNode
from peeklock.gateway.http.router import Node
from peeklock.gateway.http.stores import StoresNode, StoresView
from peeklock.gateway.http.token_guard import TokenGuard


def operator_nodes(
    guard: TokenGuard,
    stores: StoresView,
    connections: Connected,
    reload: reload_node.Reloading,
    backups: Backups,
) -> dict[str, Node]:
    """Make the nodes, by the first part of their paths."""
    return {
        stores_node.NODE: StoresNode(stores, guard),
        reload_node.NODE: ReloadNode(reload, guard),
        connected.NODE: ConnectionsNode(connections, guard),
        backups_node.NODE: BackupsNode(backups, guard),
    }
