"""Which namespace a connection belongs to: found out once, and then it stays.

The host name in `open` says it, or else the first credential that is good somewhere. Until then a
connection has no right to anything, so that nothing has been looked up anywhere.
"""

from typing import Final, final

from peeklock.auth.keyring import TokenGrant
from peeklock.auth.refusal import AuthRefusal
from peeklock.gateway.amqp.connection_output import ConnectionOutput
from peeklock.gateway.amqp.namespace_context import NamespaceContext, NamespaceContexts


@final
class NamespaceBinding:
    """Binds one connection to its namespace, and counts it there."""

    __slots__ = (
        "_key",
        "_namespace_contexts",
        "_output",
        "has_place",
        "is_bound",
        "is_over_quota",
    )

    def __init__(self, namespace_contexts: NamespaceContexts, output: ConnectionOutput) -> None:
        self._namespace_contexts: Final = namespace_contexts
        self._output: Final = output
        # The rule and the key that SASL has brought; open says where they are to be good.
        self._key: tuple[str, str] | None = None
        # It is one of the connections that the namespace may have: its first token was good.
        self.has_place = False
        # Its namespace is known.
        self.is_bound = False
        # There are as many connections as there may be: this one gets no rights any more, whatever
        # it has sent along.
        self.is_over_quota = False

    def show_key(self, rule_name: str, key: str, host: str) -> AuthRefusal | None:
        """Take a credential of SASL; answers why it is good for nothing."""
        namespace_context = self._namespace_contexts.at(host) or self._namespace_contexts.of_key(
            rule_name, key
        )
        self._try_namespace(namespace_context)
        found = namespace_context.keys.verify_plain(rule_name, key)
        if isinstance(found, AuthRefusal):
            return found
        self._key = (rule_name, key)
        return None

    def open(self, host: str) -> list[TokenGrant] | AuthRefusal:
        """Go where the host name leads, or where the key of SASL does; answers what it grants."""
        namespace_context = self._namespace_contexts.at(host)
        key = self._key
        self._key = None
        if key is None:
            if namespace_context is not None:
                self._try_namespace(namespace_context)
                self.is_bound = True
            return []
        if namespace_context is None:
            namespace_context = self._namespace_contexts.of_key(key[0], key[1])
        self._try_namespace(namespace_context)
        grants = namespace_context.keys.verify_plain(key[0], key[1])
        if not isinstance(grants, AuthRefusal):
            self._bind(namespace_context)
        return grants

    def verify(self, token: str, audience: str) -> TokenGrant | AuthRefusal:
        """Check a token; the first good one says where the connection belongs, if nothing did."""
        if not self.is_bound:
            self._try_namespace(self._namespace_contexts.of_token(token))
        namespace_context = self._output.namespace_context
        now, is_exposed = namespace_context.clock.wall(), self._output.is_exposed
        found = namespace_context.keys.verify(token, audience, now, is_exposed=is_exposed)
        if isinstance(found, TokenGrant) and not self.has_place:
            self._bind(namespace_context)
        return found

    def leave(self) -> None:
        """The connection is no more."""
        if self.has_place:
            self.has_place = False
            self._output.namespace_context.connection_quota.leave()

    def _try_namespace(self, namespace_context: NamespaceContext) -> None:
        """Ask a namespace: what is refused is refused in its name."""
        self._output.namespace_context = namespace_context

    def _bind(self, namespace_context: NamespaceContext) -> None:
        self._output.namespace_context = namespace_context
        self.is_bound = True
        self.has_place = namespace_context.connection_quota.join()
        self.is_over_quota = not self.has_place
