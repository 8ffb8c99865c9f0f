"""How a composite type is written down as data: one row per field, in the order of the wire [1.4].

The rows can be compared with the OASIS page line by line. A row's `kind` is the class that the
decoded value must have; ANY takes everything, and a tuple of classes means one of these composites.
"""

from typing import Any, Final, final

ANY: Final = object


@final
class Field:
    """One field: its name on the wire, its type, and what its absence means."""

    __slots__ = ("attribute", "default", "kind", "multiple", "name", "required")

    def __init__(
        self, name: str, kind: Any, default: Any, *, required: bool, multiple: bool
    ) -> None:
        self.name = name
        self.attribute = name.replace("-", "_")
        self.kind = kind
        self.default = default
        self.required = required
        self.multiple = multiple


@final
class Form:
    """One composite type: its descriptor in both spellings, its value class and its fields."""

    __slots__ = ("code", "fields", "name", "symbol", "value_class")

    def __init__(self, value_class: Any, name: str, code: int, fields: tuple[Field, ...]) -> None:
        self.value_class = value_class
        self.name = name
        self.symbol = f"amqp:{name}:list"
        self.code = code
        self.fields = fields


def field(
    name: str,
    kind: Any,
    *,
    default: Any = None,
    required: bool = False,
    multiple: bool = False,
) -> Field:
    """Write one row; `multiple` fields hold a list of symbols."""
    return Field(name, kind, default, required=required, multiple=multiple)


def form(value_class: Any, name: str, code: int, *fields: Field) -> Form:
    """Write one table."""
    return Form(value_class, name, code, fields)
