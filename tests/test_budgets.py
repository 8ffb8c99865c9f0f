import pytest

from peeklock.budgets import Budget, Budgets


def test_a_budget_refuses_what_is_beyond_its_limit_and_counts_it() -> None:
    budget = Budget("bytes", 10)
    assert budget.take(7)
    assert not budget.take(4)
    assert (budget.used, budget.peak, budget.refused) == (7, 7, 1)
    assert budget.take(3)
    assert budget.is_exhausted
    budget.give_back(10)
    assert (budget.used, budget.peak, budget.refused) == (0, 10, 1)


def test_what_must_not_be_refused_is_taken_beyond_the_limit() -> None:
    budget = Budget("bytes", 10)
    budget.take_anyway(25)
    assert (budget.used, budget.peak, budget.refused) == (25, 25, 0)
    assert not budget.take(1)


def test_more_cannot_be_given_back_than_was_taken() -> None:
    budget = Budget("bytes", 10)
    assert budget.take(5)
    with pytest.raises(AssertionError):
        budget.give_back(6)


def test_budgets_are_listed_by_their_names_which_are_used_once() -> None:
    budgets = Budgets()
    connections = budgets.register("connections", 5)
    budgets.register("bytes", 10)
    assert [budget.name for budget in budgets] == ["connections", "bytes"]
    assert connections.limit == 5
    with pytest.raises(ValueError, match="connections"):
        budgets.register("connections", 6)


def test_a_budget_whose_owner_is_gone_is_shown_no_more() -> None:
    budgets = Budgets()
    budgets.register("connections", 5)
    budgets.forget("connections")
    budgets.forget("connections")
    assert list(budgets) == []
    budgets.register("connections", 6)
