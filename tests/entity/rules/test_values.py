"""The value model: readers, names and ids."""

from typing import Any
from uuid import UUID

import pytest

from peeklock.entity.rules.errors import FilterError
from peeklock.entity.rules.values import (
    MISSING,
    SYSTEM_PROPERTIES,
    PropertyBag,
    id_by,
    system_name,
)
from tests.entity.rules.reading import message


def test_a_bag_tells_missing_from_null() -> None:
    bag = message({"a": None}, Label=None)
    assert bag.user("a") is None
    assert bag.user("b") is MISSING
    assert bag.system("Label") is None
    assert bag.system("To") is MISSING
    assert repr(MISSING) == "MISSING"


def test_a_bag_knows_all_system_properties_and_no_other() -> None:
    for name in SYSTEM_PROPERTIES:
        assert message(**{name: 1}).system(name) == 1
        assert message().system(name) is MISSING
        assert system_name(name.upper()) == name
    with pytest.raises(FilterError, match="there is no system property label"):
        message().system("label")
    assert system_name("SUBJECT") == "Label"
    assert system_name("Nope") is None


def test_the_first_of_several_spellings_is_found_where_none_is_exact() -> None:
    bag = message({"Color": 1, "COLOR": 2})
    assert [bag.user(name) for name in ("color", "Color", "COLOR")] == [1, 1, 2]


def test_an_id_is_a_random_uuid_out_of_two_draws() -> None:
    draws = iter([2**64 - 1, 2**64 - 1, 0, 0])

    def random_source() -> int:
        return next(draws)

    ids: list[Any] = [id_by(random_source), PropertyBag({}, {}, random_source).new_id()]
    assert ids == [
        UUID("ffffffff-ffff-4fff-bfff-ffffffffffff"),
        UUID("00000000-0000-4000-8000-000000000000"),
    ]
    assert {one.version for one in ids} == {4}
