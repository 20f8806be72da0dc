"""A code is spent and its answer counted in one commit, and nobody is told of either before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from privatile.errors import StoreError
from privatile.survey.folder import code_hash
from privatile.survey.store import COUNTED, FREE, HANDED, Count, SurveyStore
from tests.survey.kit import Made, Visitors, make_survey, some_answers, visitors


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_survey(tmp_path / "survey", round_answers=40)


def on_disk(made: Made, code: str) -> tuple[int, Count]:
    """The state of a code and the counts of the round, as another process reads them."""
    with SurveyStore.open(made.folder.store_file, made.folder.study().digest, 1, read_only=True) as store:
        table = store.codes()
        place = table.find(code_hash(code))
        assert place is not None
        return table.states[place], store.counts()[0]


async def test_what_is_acknowledged_is_in_the_file(made: Made, people: Visitors) -> None:
    bits = some_answers(3, 6)

    for came, (code, bit) in enumerate(zip(made.codes, bits, strict=False)):
        before = Count(came, sum(bits[:came]))
        assert on_disk(made, code) == (FREE, before)
        assert (await people.question(code)).status_code == 200
        assert on_disk(made, code) == (HANDED, before)
        assert (await people.answer(code, 1, bit)).json() == {"counted": True}
        assert on_disk(made, code) == (COUNTED, Count(came + 1, before.ones + bit))


@pytest.mark.parametrize("step", ["change", "add"])
async def test_a_spent_code_and_its_count_are_one_commit(
    made: Made, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A disk that is full between the two leaves neither, whether the process goes on or starts again."""
    first, second, third = made.codes[:3]

    def full(self: SurveyStore, *given: object) -> None:
        raise StoreError("disk full")

    async with visitors(made.folder) as people:
        assert (await people.answer(first, 1, True)).json() == {"counted": True}
        with monkeypatch.context() as patched:
            patched.setattr(SurveyStore, step, full)
            for code in (second, third):
                assert (await people.answer(code, 1, True)).status_code == 503
        for code in (second, third):
            assert on_disk(made, code) == (FREE, Count(1, 1))
        assert (await people.answer(second, 1, True)).json() == {"counted": True}
    async with visitors(made.folder) as people:
        assert (await people.answer(third, 1, True)).json() == {"counted": True}
    for code in (first, second, third):
        assert on_disk(made, code) == (COUNTED, Count(3, 3))
