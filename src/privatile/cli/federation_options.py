"""Options of `privatile federation`: numbers by client, and what an open study is given."""

from typing import Any

from privatile.cli.options import numbers_by_client, one_for_all
from privatile.errors import InputError


def by_client(option: str, given: tuple[str, ...], clients: tuple[str, ...]) -> dict[str, float]:
    """`NUMBER` for all clients, `CLIENT=NUMBER` for one.

    >>> by_client("epsilon", ("1", "north=0.5"), ("north", "south"))
    {'north': 0.5, 'south': 1.0}
    """
    numbers, values = numbers_by_client(option, given)
    for name in values:
        if name not in clients:
            raise InputError(f"--{option} names {name!r}, which is not a client. Clients: {', '.join(clients)}.")
    common = one_for_all(option, numbers)
    if common is not None:
        values = dict.fromkeys(clients, common) | values
    return {client: values[client] for client in clients if client in values}


def whole_numbers(values: dict[str, float]) -> dict[str, Any]:
    """Whole numbers as integers; others stay as they are, for the study to refuse.

    >>> whole_numbers({"north": 5000.0, "south": 99.5})
    {'north': 5000, 'south': 99.5}
    """
    return {name: int(value) if value.is_integer() else value for name, value in values.items()}


def by_size(records: dict[str, Any]) -> dict[str, float]:
    """Weights in proportion to the records that each client agrees to answer with.

    >>> by_size({"north": 3000, "south": 1000})
    {'north': 0.75, 'south': 0.25}
    """
    total = sum(records.values())
    return {name: count / total for name, count in records.items()} if total > 0 else {}


ARRIVALS = ("round_answers", "end_date", "end_answers", "end_width")


def open_settings(is_open: bool, study: dict[str, Any]) -> dict[str, Any]:
    """The settings of a study, an open one or not; refused where options of the one are given for the other."""
    arrivals = {name: value for name in ARRIVALS if (value := study.pop(name)) is not None}
    if is_open and study["design"] not in ("auto", "open"):
        raise InputError(f"--open is a design of its own: leave out --design; got {study['design']!r:.40}.")
    if is_open or study["design"] == "open":
        return {**{name: value for name, value in study.items() if value is not None}, "design": "open"} | (
            {"arrivals": arrivals} if arrivals else {}
        )
    if arrivals:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in arrivals)
        raise InputError(f"{given} go with --open: other studies end after their rounds.")
    return {**study, "rounds": 200 if study["rounds"] is None else study["rounds"]}
