"""All errors, as a tree.

    PrivatileError                 exit code 1
    ├── InputError (ValueError)    exit code 2: an argument, option or file breaks a rule
    │   ├── OptionError            an option breaks its rule; `name` and `rule` say which
    │   ├── DataError              a column cannot be used; the text never holds a record's value
    │   ├── ClientTooSmall         a client has fewer records than the design needs
    │   ├── ProtocolError          a question or an answer breaks the rules of the wire
    │   │   └── NotSigned          a message without the expected signature: nobody can be blamed for it
    │   └── MissingExtra           an optional part is not installed; the text says how to install it
    ├── LedgerError                exit code 2: the ledger refuses, and says what was spent
    │   ├── AlreadyAnswered        these records, or people, have answered before
    │   ├── OtherContent           the column is not the one the ledger knows
    │   └── Equivocation           a round is asked again with another question
    ├── StoreError                 exit code 2: a run's file cannot be used
    ├── RunPaused                  exit code 3: a federation's run waits for people to decide
    ├── BrokerError                exit code 4: a broker cannot be started, reached or used
    └── SiteRefusal                exit code 5: a site's limits or ledger refuse the study; trying again does not help

A message names the thing, the rule, the value it got and how to fix it. No message ever contains a record's value.
"""

import importlib
from types import ModuleType


class PrivatileError(Exception):
    """Root of the tree; `exit_code` is what the command line returns for it."""

    exit_code = 1


class InputError(PrivatileError, ValueError):
    """An argument, an option or a file breaks a rule."""

    exit_code = 2


class OptionError(InputError):
    """An option breaks its rule: `name` is that of the keyword, and `rule` what is said of it.

    The command line writes the name as an option, and a file adds the line.
    """

    def __init__(self, name: str, rule: str) -> None:
        super().__init__(f"{name} {rule}")
        self.name = name
        self.rule = rule


class DataError(InputError):
    """A column cannot be used as it is. The text stays at the site and holds no record's value."""


class ClientTooSmall(InputError):
    """A client has fewer records than the design needs. `fact` says so; the text adds what helps."""

    def __init__(self, fact: str, client: str, cure: str) -> None:
        super().__init__(f"{fact} {cure}")
        self.fact = fact
        self.client = client


class ProtocolError(InputError):
    """A question or an answer breaks the rules of the wire."""


class NotSigned(ProtocolError):
    """A message does not carry the expected signature: anybody may have sent it."""


class MissingExtra(InputError):
    """An optional part is not installed."""


class LedgerError(PrivatileError):
    """The ledger cannot be used, or refuses."""

    exit_code = 2


class AlreadyAnswered(LedgerError):
    """Records, or people, that have answered are asked again."""


class LedgerBusy(LedgerError):
    """The ledger is in use by another process; nothing is wrong with it."""


class OtherContent(LedgerError):
    """A column's content or order differs from what the ledger knows."""


class Equivocation(LedgerError):
    """A round that was answered is asked again with another question."""


class StoreError(PrivatileError):
    """A run's file cannot be used."""

    exit_code = 2


class RunPaused(PrivatileError):
    """A federation's run waits for people to decide."""

    exit_code = 3


class BrokerError(PrivatileError):
    """A broker cannot be started, reached or used."""

    exit_code = 4


class SiteRefusal(PrivatileError):
    """A site's limits or ledger refuse the study. Trying again does not help."""

    exit_code = 5


def how_to_install(extra: str) -> str:
    """The command that installs an extra: privatile is on no package index, so it is installed from a clone.

    >>> how_to_install("report")
    "pip install '.[report]' in a clone of privatile's repository"
    """
    return f"pip install '.[{extra}]' in a clone of privatile's repository"


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module; where it is missing, the error says how to install it.

    >>> require("math", "nothing").sqrt(4.0)
    2.0
    >>> require("no_such_module_here", "report")
    Traceback (most recent call last):
    ...
    privatile.errors.MissingExtra: this needs no_such_module_here, which is not installed.
    Install it with: pip install '.[report]' in a clone of privatile's repository.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtra(
            f"this needs {module}, which is not installed. Install it with: {how_to_install(extra)}."
        ) from None
