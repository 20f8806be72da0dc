"""The options that say where records come from and how they are written, for every command that reads them."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

from privatile.cli.options import file, text
from privatile.errors import InputError

READING = (
    text(
        "--sql",
        "QUERY",
        "Rows of a database, as a SELECT with ORDER BY: of an SQLite or DuckDB file, or of a database by its address.",
    ),
    text(
        "--database-url-env",
        "NAME",
        "Variable of the environment with the database's address, its password included, in place of a file. Any "
        "database that SQLAlchemy knows.",
    ),
    file("--database-url-file", "FILE", "The same, from the first line of a file that only you can read."),
    text(
        "--delimiter",
        "SIGN",
        "Between the columns of a CSV file: comma, semicolon, tab, pipe or any sign. Found out unless given.",
    ),
    text("--decimal", "point|comma", "Before the decimals of its numbers. Found out unless given, or refused."),
    text(
        "--thousands",
        "MARK",
        "Between their thousands: point, comma, space, apostrophe or none. Unless given: comma with decimal points, "
        "point with decimal commas.",
    ),
    text("--unit", "TEXT", "Beside its numbers, before or after: € or USD or kg."),
)


@dataclass(frozen=True)
class ReadingOptions:
    """What the command line says about it."""

    sql: str | None
    database_url_env: str | None
    database_url_file: Path | None
    delimiter: str | None
    decimal: str | None
    thousands: str | None
    unit: str | None

    @property
    def is_by_address(self) -> bool:
        """Whether a database's address takes the place of a file."""
        return self.database_url_env is not None or self.database_url_file is not None

    @property
    def text_format(self) -> dict[str, str | None]:
        """How a CSV file is written."""
        return {name: getattr(self, name) for name in ("delimiter", "decimal", "thousands", "unit")}

    def data(self, file: str | Path | None, option: str, sql: str | None = None) -> object:
        """The one place that records come from: a file, or a database by its address with a query."""
        from privatile.client.sources.databases import DatabaseUrl, address_refused
        from privatile.core.words import is_address

        if not self.is_by_address:
            if file is None:
                raise InputError(f"{option} is missing: name a file, or a database with --database-url-file and --sql.")
            if is_address(str(file)):
                raise address_refused()
            return file
        if file is not None:
            raise InputError(f"{option} and the address of a database exclude each other: records come from one place.")
        if self.sql is None and sql is None:
            raise InputError("a database by its address needs a query: --sql 'SELECT … ORDER BY …'.")
        if self.database_url_env is None:
            return DatabaseUrl.from_file(self.database_url_file or Path())
        if self.database_url_file is not None:
            raise InputError("--database-url-env and --database-url-file exclude each other: give one of them.")
        return DatabaseUrl.from_environment(self.database_url_env)

    def arguments(self) -> list[str]:
        """The same on the command line of a service, with full paths."""
        if self.database_url_env is not None:
            raise InputError(
                "a service does not have your environment. Put the database's address into a file that only its user "
                "can read: --database-url-file FILE."
            )
        path = self.database_url_file
        given = {**asdict(self), "database_url_file": None if path is None else str(path.absolute())}
        return [
            word for name, said in given.items() if said is not None for word in (f"--{name.replace('_', '-')}", said)
        ]


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """All of them; the command gets one argument, `reading`."""
    names = [field.name for field in fields(ReadingOptions)]

    @wraps(command)
    def with_options(*args: Any, **values: Any) -> Any:
        reading = ReadingOptions(**{name: values.pop(name) for name in names})
        return command(*args, reading=reading, **values)

    given: Callable[..., Any] = with_options
    for option in reversed(READING):
        given = option(given)
    return given
