"""The three rights, and the rules that hand them out under a name and two keys."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, final

# Flags in one int, because a right is asked for with every transfer.
Rights: TypeAlias = int
NO_RIGHTS: Final = 0
LISTEN: Final = 1
SEND: Final = 2
MANAGE: Final = 4
ALL_RIGHTS: Final = LISTEN | SEND | MANAGE

ROOT_RULE_NAME: Final = "RootManageSharedAccessKey"
# The key in every emulator connection string: public knowledge, so it is good on loopback only.
DEVELOPMENT_KEY: Final = "SAS_KEY_VALUE"

NO_TIMES: Final = ("", "")

_FLAGS: Final = {"Listen": LISTEN, "Send": SEND, "Manage": MANAGE}
_FLAGS_BY_LOWER_NAME: Final = {name.lower(): flag for name, flag in _FLAGS.items()}


@final
@dataclass(slots=True)
class AuthorizationRule:
    """A named pair of keys and the rights that a token signed with either of them carries."""

    name: Final[str]
    primary_key: Final[str]
    secondary_key: Final[str] = ""
    rights: Rights = ALL_RIGHTS
    # When it was made and changed, as its owner wrote it; nobody else says it.
    times: Final[tuple[str, ...]] = NO_TIMES

    def __post_init__(self) -> None:
        self.rights = complete(self.rights)

    def signing_keys(self) -> list[str]:
        """Return the keys that are set; an empty one signs nothing."""
        return [key for key in (self.primary_key, self.secondary_key) if key]

    def __repr__(self) -> str:
        # Written out so that no key reaches a log or a traceback.
        return f"AuthorizationRule({self.name!r}, rights={'+'.join(rights_names(self.rights))})"


def development_rule() -> AuthorizationRule:
    """Return the namespace's rule when nobody chose one: the emulator's, known to every client."""
    return AuthorizationRule(ROOT_RULE_NAME, DEVELOPMENT_KEY)


def complete(rights: Rights) -> Rights:
    """Add what a right implies: who manages may send and listen."""
    return ALL_RIGHTS if rights & MANAGE else rights


def allows(held: Rights, wanted: Rights) -> bool:
    """Return whether all wanted rights are held."""
    return held & wanted == wanted


def rights_from_names(names: Iterable[str]) -> Rights:
    """Read rights from their names, in any case; an unknown name is a ValueError."""
    rights = NO_RIGHTS
    for name in names:
        flag = _FLAGS_BY_LOWER_NAME.get(name.lower())
        if flag is None:
            raise ValueError(f"'{name}' is not a right, the rights are {', '.join(_FLAGS)}")
        rights |= flag
    return complete(rights)


def rights_names(rights: Rights) -> list[str]:
    """Return the names of the rights held, in their usual order."""
    return [name for name, flag in _FLAGS.items() if rights & flag]
