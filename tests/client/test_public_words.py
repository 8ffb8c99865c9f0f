"""What users call is explained where their editor shows it: each parameter by its name."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peeklock import client as package

# Between the parts of the client, or said by the class.
UNTOLD = {"AutoLockRenewer.forget", "ServiceBusClient.of", "ServiceBusMessageBatch.add_payload"}
UNTOLD |= {"ServiceBusTransaction.perform", "ServiceBusTransaction.stamp"}
UNTOLD |= {"ServiceBusReceivedMessage.lock_renewed"}


def public_methods() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in package.__all__:
        each = getattr(package, name)
        if not inspect.isclass(each) or each.__module__.startswith("enum"):
            continue
        for method, value in vars(each).items():
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and not method.startswith("_"):
                yield f"{name}.{method}", function


@pytest.mark.parametrize(("name", "method"), list(public_methods()))
def test_each_parameter_is_told(name: str, method: Callable[..., Any]) -> None:
    said = inspect.getdoc(method)
    assert said, f"{name} says nothing"
    if name in UNTOLD:
        return
    parameters = [
        each for each in inspect.signature(method).parameters if each not in ("self", "cls")
    ]
    untold = [each for each in parameters if f"{each}:" not in said and f"`{each}`" not in said]
    assert untold == [], f"{name} does not tell of {untold}"
