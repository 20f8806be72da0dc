"""What must hold in a survey: one answer per code, in one commit with its count, in its own round."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from privatile.errors import StoreError
from privatile.run.rounds import OpenRound, Phase
from privatile.survey.store import Altered
from tests.named_faults import Seams, fault

Function = Callable[..., Any]
Hit = Callable[[], None]

STORE = "privatile.survey.store:SurveyStore"

# -- one commit


@fault("tests/survey/test_one_commit.py::test_what_is_acknowledged_is_in_the_file")
def an_answer_is_acknowledged_before_it_is_on_the_disk(seams: Seams) -> None:
    """A group of changes is committed with the next one."""
    under_way: defaultdict[int, ExitStack] = defaultdict(ExitStack)

    def make(original: Function, hit: Hit) -> Function:
        @contextmanager
        def transaction(self: Any) -> Iterator[None]:
            under_way[id(self)].close()
            under_way[id(self)].enter_context(original(self))
            hit()
            yield

        return transaction

    seams.replace(f"{STORE}.transaction", make)


@fault("tests/survey/test_one_commit.py::test_a_spent_code_and_its_count_are_one_commit")
def a_code_is_spent_whose_answer_could_not_be_counted(seams: Seams) -> None:
    """What was written before a failure is committed."""

    def make(original: Function, hit: Hit) -> Function:
        @contextmanager
        def transaction(self: Any) -> Iterator[None]:
            failure = None
            with original(self):
                try:
                    yield
                except StoreError as error:
                    failure = error
                    hit()
            if failure is not None:
                raise failure

        return transaction

    seams.replace(f"{STORE}.transaction", make)


# -- one answer per code


@fault("tests/survey/test_crash.py::test_random_histories_agree_with_a_model")
def a_code_answers_again_after_a_restart(seams: Seams) -> None:
    """That it is spent is known to the process alone."""
    seams.skip(f"{STORE}.change")


@fault("tests/survey/test_gateway.py::test_codes_that_somebody_else_changed_are_not_answered_for")
def a_code_that_another_program_has_spent_answers_again(seams: Seams) -> None:
    seams.forgive(f"{STORE}.change", Altered)


@fault("tests/survey/test_two_gateways.py::test_every_answer_that_either_acknowledged_is_counted")
def two_gateways_write_one_file(seams: Seams) -> None:
    seams.skip(f"{STORE}.require_writer")


@fault("tests/survey/test_restore.py::test_both_files_of_an_old_backup_are_refused_until_that_is_declared")
def an_old_backup_is_served(seams: Seams) -> None:
    seams.change("privatile.survey.store:SurveyMark.read", lambda *_: 0)


@fault("tests/survey/test_restore.py::test_both_files_of_an_old_backup_are_refused_until_that_is_declared")
def codes_of_a_restored_file_are_free(seams: Seams) -> None:
    """As if no code had been used since the backup: nobody is warned before a second answer."""
    seams.skip(f"{STORE}.mark_restored")


@fault("tests/survey/test_client.py::test_the_bit_is_on_the_disk_before_it_is_sent")
def a_device_sends_a_bit_that_it_has_not_stored(seams: Seams) -> None:
    seams.skip("privatile.survey.client:AnswerFile.add")


# -- its own round


@fault("tests/survey/test_gateway.py::test_a_round_drains_closes_and_takes_no_late_answer")
def an_answer_to_an_earlier_round_is_counted(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def answer(self: Any, code: str, number: int, *rest: Any) -> Any:
            if number != self.state.number:
                hit()
            return original(self, code, self.state.number, *rest)

        return answer

    seams.replace("privatile.survey.service:SurveyService.answer", make)


@fault("tests/survey/test_gateway.py::test_a_survey_ends_by_command_number_and_date")
def an_answer_to_a_closed_survey_is_counted(seams: Seams) -> None:
    seams.change("privatile.run.rounds:OpenRound.counts", lambda *_: True)


@fault("tests/survey/test_gateway.py::test_a_round_drains_closes_and_takes_no_late_answer")
def a_round_closes_before_it_has_drained(seams: Seams) -> None:
    def closed(found: OpenRound, *_: Any) -> OpenRound:
        return replace(found, phase=Phase.CLOSING) if found.phase is Phase.DRAINING else found

    seams.change("privatile.run.rounds:advance", closed)


@fault("tests/survey/test_nothing_joined.py::test_the_log_of_commits_is_empty_after_a_round_and_after_the_end")
def a_log_that_joins_codes_to_answers_stays(seams: Seams) -> None:
    seams.skip(f"{STORE}.empty_log")


# -- requests


@fault("tests/run/test_web.py::test_headers_without_end_are_refused")
def headers_may_be_of_any_size(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def make_server(*arguments: Any, **settings: Any) -> Any:
            hit()
            return original(*arguments, **{**settings, "h11_max_incomplete_event_size": 1 << 30})

        return make_server

    seams.replace("privatile.run.web:make_server", make)
