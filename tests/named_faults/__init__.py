"""Named faults: each breaks one promise at a public seam, and names the test that must notice it.

A fault is a function in one of the files here. It replaces seams and calls `hit` where it does harm, which proves that
it ran. `python -m tests.named_faults` runs all of them, `python -m tests.named_faults WORD …` those whose name or file
contains a word. A fault is killed if its test passes without it, fails by an assertion with it, and the fault ran.

A commit that moves a seam or a test moves the fault with it. The meaning stays, and no fault is dropped.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

Make = Callable[[Callable[..., Any], Callable[[], None]], Callable[..., Any]]


class Seams:
    """Replaces functions and methods, and knows whether a replacement did harm."""

    def __init__(self) -> None:
        self.ran = False

    def hit(self) -> None:
        """Note that the fault did harm."""
        self.ran = True

    def replace(self, target: str, make: Make) -> None:
        """Replace `package.module:name` or `package.module:Class.name` by what `make(original, hit)` returns.

        A function is replaced in every module that has imported it; a property by a property.
        """
        module_name, _, path = target.partition(":")
        owner: Any = importlib.import_module(module_name)
        *parents, name = path.split(".")
        for each in parents:
            owner = getattr(owner, each)
        original = inspect.getattr_static(owner, name)
        if isinstance(original, property):
            assert original.fget is not None
            setattr(owner, name, property(make(original.fget, self.hit)))
        elif isinstance(original, staticmethod | classmethod):
            setattr(owner, name, type(original)(make(original.__func__, self.hit)))
        else:
            changed = make(original, self.hit)
            setattr(owner, name, changed)
            if isinstance(owner, ModuleType):
                self._replace_everywhere(original, changed)

    def skip(self, target: str) -> None:
        """Replace a function by one that does nothing and returns None."""
        self.replace(target, lambda original, hit: lambda *arguments, **options: hit())

    def change(self, target: str, other: Callable[..., Any]) -> None:
        """Return `other(result, *arguments)` in the place of a function's result; harm is done if it is another object.

        Nothing that `other` calls may be the function itself.
        """

        def make(original: Callable[..., Any], hit: Callable[[], None]) -> Callable[..., Any]:
            def changed(*arguments: Any, **options: Any) -> Any:
                result = original(*arguments, **options)
                returned = other(result, *arguments, **options)
                if returned is not result:
                    hit()
                return returned

            return changed

        self.replace(target, make)

    def forgive(self, target: str, error: type[Exception]) -> None:
        """Let a function that refuses by this error return None instead."""

        def make(original: Callable[..., Any], hit: Callable[[], None]) -> Callable[..., Any]:
            def forgiving(*arguments: Any, **options: Any) -> Any:
                try:
                    return original(*arguments, **options)
                except error:
                    return hit()

            return forgiving

        self.replace(target, make)

    @staticmethod
    def _replace_everywhere(original: FunctionType, changed: Callable[..., Any]) -> None:
        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith(("privatile", "tests", "studies")):
                for name, value in list(vars(module).items()):
                    if value is original:
                        setattr(module, name, changed)


@dataclass(frozen=True)
class Fault:
    """One fault: what goes wrong, the test that notices it, and the function that plants it."""

    name: str
    noticed_by: str
    plant: Callable[[Seams], None]

    @property
    def file(self) -> str:
        return self.plant.__module__.rpartition(".")[2]


FAULTS: dict[str, Fault] = {}


def fault(noticed_by: str) -> Callable[[Callable[[Seams], None]], Callable[[Seams], None]]:
    """Declare a fault; its name is the function's name in words."""

    def declare(plant: Callable[[Seams], None]) -> Callable[[Seams], None]:
        name = plant.__name__.replace("_", " ")
        assert name not in FAULTS, name
        FAULTS[name] = Fault(name, noticed_by, plant)
        return plant

    return declare


def all_faults() -> list[Fault]:
    """Every fault of every file here."""
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return list(FAULTS.values())
