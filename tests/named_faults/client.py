"""What must hold so that a record answers once, privately: coins, mechanism, responder, order, ledger."""

import hashlib
import math
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tests.named_faults import Seams, fault

Function = Callable[..., Any]
Hit = Callable[[], None]

ACCOUNT = "privatile.client.ledger.account:Account"
BUDGETS = "privatile.client.ledger.people:LifetimeBudgets"
COINS = "privatile.client.randomizer:OperatingSystemCoins.draw"
DATASETS = "privatile.client.ledger.datasets"
KEYS = "privatile.client.ledger.integrity"
LEDGER = "privatile.client.ledger.ledger:Ledger"
LIMIT = "privatile.client.ledger.account:SpendingRules.lifetime_limit"
MARK = "privatile.client.ledger.integrity:Mark"
MECHANISM = "privatile.core.mechanism:RandomizedResponse"
RESPONDER = "privatile.client.responder:Responder"
TAGS = "privatile.client.order.tags:words_at"


def without_limit_in(seams: Seams, target: str, when: Function = lambda *arguments: True) -> None:
    """While this method runs, there is no limit for life."""
    inside = 0

    def unlimited(original: Function, hit: Hit) -> Function:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal inside
            counts = when(*arguments)
            inside += counts
            try:
                return original(*arguments, **options)
            finally:
                inside -= counts

        return called

    seams.replace(target, unlimited)
    seams.change(LIMIT, lambda limit, rules: math.inf if inside and limit < math.inf else limit)


# -- coins and mechanism ---------------------------------------------------------------------------------------------


@fault("tests/client/test_responder.py::test_cohort_counts_equal_a_plain_loop_with_the_same_coins")
def one_coin_serves_a_whole_cohort(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def respond(self: Any, truth: Any, coins: Any) -> Any:
            if len(coins) > 1:
                hit()
            return original(self, truth, np.full_like(coins, coins[0]))

        return respond

    seams.replace(f"{MECHANISM}.respond", make)


@fault("tests/client/test_coins.py::test_seeded_coins_repeat_and_others_do_not")
def the_operating_systems_coins_come_again(seams: Seams) -> None:
    drawn: dict[int, Any] = {}
    seams.change(COINS, lambda coins, self, count: drawn.setdefault(count, coins))


@fault("tests/api/test_randomness.py::test_no_variable_changes_where_coins_come_from")
def coins_of_a_real_run_come_from_a_seed(seams: Seams) -> None:
    from privatile.client.randomizer import SeededCoins

    def make(original: Function, hit: Hit) -> Function:
        def opened(data: Any, options: Any, rng: Any = None) -> Any:
            ledger, coins, division = original(data, options, rng)
            if rng is None and os.environ.get("PRIVATILE_SEED"):
                hit()
                coins = SeededCoins(np.random.default_rng(int(os.environ["PRIVATILE_SEED"])))
            return ledger, coins, division

        return opened

    seams.replace("privatile.api.local_run:opened", make)


@fault("tests/core/test_mechanism.py::test_no_budget_is_ever_exceeded")
def the_truth_is_told_more_often_than_the_budget_allows(seams: Seams) -> None:
    def more(coin: Any, cls: Any, epsilon: float) -> Any:
        return coin if coin.threshold > 2**64 - 4 else cls.from_threshold(coin.threshold + 2)

    seams.change(f"{MECHANISM}.from_epsilon", more)


@fault("tests/client/test_responder.py::test_reports_have_the_stated_truth_rate")
def reports_follow_another_truth_rate_than_the_stated_one(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def respond(self: Any, truth: Any, coins: Any) -> Any:
            hit()
            return (coins >= np.uint64(self.threshold // 100 * 102)) ^ truth

        return respond

    seams.replace(f"{MECHANISM}.respond", make)


@fault("tests/client/test_responder.py::test_missing_records_pull_nowhere")
def a_missing_record_always_says_not_above(seams: Seams) -> None:
    seams.change("privatile.client.randomizer:missing_threshold", lambda threshold, level: np.uint64(0))


@fault("tests/client/test_responder.py::test_dropped_records_are_walked_past")
def records_without_a_value_answer_though_they_are_dropped(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def blocks(self: Any, start: int, stop: int) -> Iterator[Any]:
            for block in original(self, start, stop):
                if np.isnan(block.values).any():
                    hit()
                yield block._replace(values=np.nan_to_num(block.values, nan=0.0))

        return blocks

    seams.replace("privatile.client.order.shuffle:ShuffledColumn.blocks", make)


# -- one count per question, durable first -----------------------------------------------------------------------------


@fault("tests/client/test_accounts.py::test_the_same_question_gets_the_stored_count")
def a_question_that_is_repeated_gets_another_count(seams: Seams) -> None:
    """As if coins were drawn again."""
    answered = set()

    def again(found: Any, responder: Any, question: Any) -> Any:
        asked = (id(responder.ledger), question)
        if asked in answered:
            return replace(found, ones=found.ones ^ 1)
        answered.add(asked)
        return found

    seams.change(f"{RESPONDER}._respond", again)


@fault("tests/client/test_accounts.py::test_a_changed_question_is_equivocation")
def a_changed_question_gets_the_stored_count(seams: Seams) -> None:
    from privatile.errors import Equivocation

    def make(original: Function, hit: Hit) -> Function:
        first: dict[tuple[int, str, int, float], Any] = {}

        def respond(self: Any, question: Any) -> Any:
            asked = first.setdefault((id(self.ledger), question.run, question.round, question.level), question)
            try:
                return original(self, question)
            except Equivocation:
                hit()
                return original(self, asked)

        return respond

    seams.replace(f"{RESPONDER}._respond", make)


@fault("tests/client/test_ledger.py::test_an_answer_is_durable_before_it_is_returned")
def a_count_is_returned_before_its_commit(seams: Seams) -> None:
    """The commit waits for the next transaction."""

    def make(original: Function, hit: Hit) -> Function:
        waiting = set()

        def execute(self: Any, sql: str, values: Any = ()) -> Any:
            if sql == "COMMIT" and self._on_disk:
                hit()
                waiting.add(id(self))
                return None
            if sql == "BEGIN IMMEDIATE" and id(self) in waiting:
                waiting.discard(id(self))
                original(self, "COMMIT")
            return original(self, sql, values)

        return execute

    def at_the_end(original: Function, hit: Hit) -> Function:
        def close(self: Any) -> None:
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")
            original(self)

        return close

    seams.replace(f"{LEDGER}.execute", make)
    seams.replace(f"{LEDGER}.close", at_the_end)


@fault("tests/client/test_ledger.py::test_a_failed_commit_releases_nothing")
def a_commit_that_failed_is_passed_over(seams: Seams) -> None:
    from privatile.errors import LedgerError

    def make(original: Function, hit: Hit) -> Function:
        @contextmanager
        def transaction(self: Any) -> Iterator[None]:
            done = False
            try:
                with original(self):
                    yield
                    done = True
            except LedgerError:
                if not done:
                    raise
                hit()

        return transaction

    seams.replace(f"{LEDGER}.transaction", make)


@fault("tests/client/test_responder.py::test_a_whole_round_in_one_transaction")
def each_client_of_a_round_answers_in_a_transaction_of_its_own(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def answer_all(asked: Any) -> Any:
            hit()
            return [responder.answer(question) for responder, question in asked]

        return answer_all

    seams.replace("privatile.client.responder:answer_all", make)


@fault("tests/client/test_responder.py::test_more_records_than_there_are")
def a_question_that_asks_too_many_is_answered_by_those_who_are_left(seams: Seams) -> None:
    from privatile.errors import AlreadyAnswered

    def make(original: Function, hit: Hit) -> Function:
        def respond(self: Any, question: Any) -> Any:
            try:
                return original(self, question)
            except AlreadyAnswered:
                if not (left := self.available()):
                    raise
                hit()
                return original(self, replace(question, length=left))

        return respond

    seams.replace(f"{RESPONDER}._respond", make)


@fault("tests/federation/test_agreed_records.py::test_a_level_that_is_refused_takes_the_other_levels_of_its_round_back")
def each_level_of_a_sites_round_is_a_transaction_of_its_own(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def answer(self: Any, questions: Any) -> Any:
            if len(questions) > 1:
                hit()
            return tuple(one for question in questions for one in original(self, [question]))

        return answer

    seams.replace("privatile.federation.site.responder:SiteResponder.answer", make)


@fault("tests/client/test_ledger.py::test_two_threads_on_one_ledger_answer_one_after_the_other")
def threads_do_not_wait_for_each_other(seams: Seams) -> None:
    class Open:
        def __init__(self) -> None:
            self.inside: list[int] = []

        def __enter__(self) -> None:
            self.inside.append(threading.get_ident())
            if len(set(self.inside)) > 1:
                seams.hit()

        def __exit__(self, *failure: object) -> None:
            self.inside.remove(threading.get_ident())

    def make(original: Function, hit: Hit) -> Function:
        def begin(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            self._lock = Open()

        return begin

    seams.replace(f"{LEDGER}.__init__", make)


@fault("tests/client/test_ledger.py::test_the_table_itself_holds_one_answer_for_each_round_and_level")
def a_later_entry_replaces_that_of_the_same_round(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def append(self: Any, run: str, client: str, number: int, question: Any, *rest: Any) -> Any:
            own = (run, client, question.round, question.level)
            where = "run = ? AND client = ? AND round = ? AND level = ?"
            if self.execute(f"DELETE FROM answers WHERE {where}", own).rowcount:
                hit()
            return original(self, run, client, number, question, *rest)

        return append

    seams.replace(f"{LEDGER}.append", make)


@fault("tests/client/test_ledger.py::test_a_kill_between_key_and_ledger_leaves_the_key_and_no_ledger")
def a_ledger_is_made_before_its_key_is_safe(seams: Seams) -> None:
    seams.skip(f"{KEYS}:SecretKey.save")


# -- a record answers once ---------------------------------------------------------------------------------------------


def cursor_stands_still(seams: Seams) -> None:
    """Every question asks the run's first records again."""

    def stuck(state: Any, account: Any) -> Any:
        return state if state.first in (None, state.cursor) else state._replace(cursor=state.first)

    seams.change(f"{ACCOUNT}.state", stuck)


@fault("tests/client/test_accounts.py::test_whatever_is_asked_the_books_are_right")
def the_cursor_of_a_run_stands_still(seams: Seams) -> None:
    cursor_stands_still(seams)


@fault("tests/model/test_histories.py::test_no_history_makes_anybody_answer_or_pay_twice")
def the_cursor_stands_still_in_a_history_of_kills(seams: Seams) -> None:
    cursor_stands_still(seams)


@fault("tests/client/test_kill.py::test_kill_nine")
def a_kill_sets_the_cursor_back(seams: Seams) -> None:
    """As a fresh shuffle after a crash would; whoever has the key can do it."""
    from privatile.client.ledger.ledger import Ledger

    def make(original: Function, hit: Hit) -> Function:
        def start(folder: Any, rounds: int, kind: str) -> Any:
            if (folder / "ledger.db").exists():
                with Ledger.open(folder / "ledger.db") as ledger, ledger.transaction():
                    if ledger.update("datasets", "cursor = 0", (), "cursor > 0", ()):
                        hit()
            return original(folder, rounds, kind)

        return start

    seams.replace("tests.client.test_kill:start", make)


@fault("tests/client/test_accounts.py::test_a_later_run_uses_records_that_have_not_answered")
def a_new_run_begins_at_the_first_record(seams: Seams) -> None:
    def back(state: Any, account: Any) -> Any:
        return state._replace(cursor=0) if state.first is None and state.cursor else state

    seams.change(f"{ACCOUNT}.state", back)


@fault("tests/client/test_responder.py::test_cohort_counts_equal_a_plain_loop_with_the_same_coins")
def a_cohort_begins_with_the_last_record_of_the_one_before(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def blocks(self: Any, start: int, stop: int) -> Any:
            if not start:
                return original(self, start, stop)
            hit()
            return original(self, start - 1, stop - 1)

        return blocks

    seams.replace("privatile.client.order.shuffle:ShuffledColumn.blocks", make)


@fault("tests/client/test_accounts.py::test_spending_again_adds_up")
def who_may_spend_again_answers_twice_within_a_run(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def window(self: Any, state: Any = None) -> tuple[int, int]:
            start, limit = original(self, state)
            if not self.rules.spend_again:
                return start, limit
            hit()
            return start, limit + self.content.records

        return window

    seams.replace(f"{ACCOUNT}.window", make)


@fault("tests/client/test_reserve.py::test_two_runs_at_once_both_end")
def what_is_reserved_is_not_kept(seams: Seams) -> None:
    seams.skip(f"{RESPONDER}.reserve")


@fault("tests/client/test_reserve.py::test_release_gives_back_what_was_not_asked")
def a_release_gives_back_what_was_asked(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def release(ledger: Any, run: str, client: str) -> None:
            original(ledger, run, client)
            ledger.update("datasets", "cursor = 0", (), "client = ?", (client,))
            hit()

        return release

    seams.replace("privatile.client.ledger.account:release", make)


@fault("tests/client/test_reserve.py::test_a_release_stops_where_a_later_run_stands")
def a_release_forgets_that_a_later_run_has_answered(seams: Seams) -> None:
    """The cursor returns to where the run itself stood."""

    def make(original: Function, hit: Hit) -> Function:
        def release(ledger: Any, run: str, client: str) -> None:
            own = ledger.execute(
                "SELECT dataset, next FROM runs WHERE run = ? AND client = ? AND reserved > next", (run, client)
            ).fetchone()
            original(ledger, run, client)
            if own is not None:
                ledger.update("datasets", "cursor = min(cursor, ?)", own[1:], "id = ?", own[:1])
                hit()

        return release

    seams.replace("privatile.client.ledger.account:release", make)


@fault("tests/client/test_reserve.py::test_a_release_is_noted_beside_the_key_before_it_is_committed")
def a_release_is_committed_before_it_is_noted(seams: Seams) -> None:
    waiting: list[Callable[[], None]] = []

    def later(original: Function, hit: Hit) -> Function:
        return lambda *arguments: waiting.append(lambda: original(*arguments))

    def make(original: Function, hit: Hit) -> Function:
        @contextmanager
        def transaction(self: Any) -> Iterator[None]:
            with original(self):
                yield
            while waiting and not self._depth:
                hit()
                waiting.pop()()

        return transaction

    seams.replace(f"{KEYS}:LedgerKey.note_given_up", later)
    seams.replace(f"{LEDGER}.transaction", make)


@fault("tests/api/test_api.py::test_all_clients_of_a_run_reserve_their_records_or_none")
def each_client_reserves_in_a_transaction_of_its_own(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def reserve(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            if self.ledger._depth:
                hit()
                self.ledger.seal.write()
                self.ledger.execute("COMMIT")
                self.ledger.execute("BEGIN IMMEDIATE")

        return reserve

    seams.replace(f"{RESPONDER}.reserve", make)


# -- which records are the same ----------------------------------------------------------------------------------------


@fault("tests/client/test_accounts.py::test_other_content_is_refused_unless_they_are_others")
def other_content_is_admitted(seams: Seams) -> None:
    from privatile.errors import OtherContent

    seams.forgive("privatile.client.ledger.account:admit", OtherContent)


@fault("tests/client/test_accounts.py::test_a_resumed_run_needs_the_same_content")
def a_run_goes_on_with_other_content(seams: Seams) -> None:
    from privatile.errors import OtherContent

    seams.forgive(f"{ACCOUNT}._open", OtherContent)


@fault("tests/client/test_overlap.py::test_renamed_content")
def renamed_content_is_not_recognised(seams: Seams) -> None:
    seams.change(f"{DATASETS}:overlapping_datasets", lambda found, *arguments: {} if found else found)


@fault("tests/client/test_overlap.py::test_data_sets_that_overlap_indirectly_are_added_up")
def what_overlaps_indirectly_is_left_out(seams: Seams) -> None:
    """What overlaps with a data set counts, what overlaps with that one does not."""
    from privatile.client.ledger.datasets import Content

    seams.change(
        f"{DATASETS}:overlapping_datasets",
        lambda found, ledger, this: found if isinstance(this, Content) or not found else {},
    )


@fault("tests/client/test_worst_case.py::test_the_word_does_not_hide_the_same_records_from_the_next_run")
def new_people_are_left_out_beside_the_same_records(seams: Seams) -> None:
    """What the ledger holds is compared among itself, a run that is not entered yet with nothing."""
    from privatile.client.ledger.datasets import Content

    seams.change(
        f"{DATASETS}:sharing_datasets",
        lambda found, ledger, this: {} if found and isinstance(this, Content) else found,
    )


@fault("tests/client/test_shuffle.py::test_all_kinds_of_nan_are_one")
def two_forms_of_nan_are_two_contents(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def shuffle(source: Any, *arguments: Any, **options: Any) -> Any:
            forms = hashlib.blake2b(digest_size=16)
            batches = source.batches

            def noted() -> Iterator[Any]:
                for batch in batches():
                    forms.update(batch.values[np.isnan(batch.values)].tobytes())
                    yield batch

            source.batches = noted
            columns = original(source, *arguments, **options)
            for column in columns.values():
                hit()
                column.content = replace(column.content, digest=forms.digest())
            return columns

        return shuffle

    seams.replace("privatile.client.order.shuffle:shuffle", make)


@fault("tests/client/test_person_forms.py::test_people_who_come_back_in_another_form_do_not_answer_again")
def a_person_in_another_form_is_another_person(seams: Seams) -> None:
    seams.change(
        "privatile.client.sources.people:person_text",
        lambda text, value, **options: text if isinstance(value, str) else f"{type(value).__name__} {text}",
    )


@fault("tests/client/test_people.py::test_one_record_a_person_across_clients")
def all_records_of_a_person_may_answer(seams: Seams) -> None:
    seams.change(
        "privatile.client.order.shuffle:one_each", lambda kept, people, choice: np.arange(len(choice), dtype=np.intp)
    )


@fault("tests/client/test_accounts.py::test_another_person_key_is_refused")
def another_person_key_is_taken(seams: Seams) -> None:
    from privatile.errors import LedgerError

    seams.forgive(f"{LEDGER}.check_person_key", LedgerError)


@fault("tests/client/test_people.py::test_a_key_never_replaces_another")
def a_key_file_replaces_another(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def create(path: Any, fill: Function) -> None:
            if path.exists():
                hit()
                path.unlink()
            original(path, fill)

        return create

    seams.replace("privatile.core.private_files:create_private", make)


# -- the secret order --------------------------------------------------------------------------------------------------


@fault("tests/client/test_shuffle.py::test_clients_and_columns_have_orders_of_their_own")
def the_order_is_used_again_under_another_key(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def words_at(key: bytes, start: int, count: int) -> Any:
            hit()
            return original(bytes(32), start, count)

        return words_at

    seams.replace(TAGS, make)


@fault("tests/client/test_shuffle.py::test_a_clients_rows_keep_digest_and_order_in_every_layout")
def one_stream_of_tags_serves_all_clients_of_a_file(seams: Seams) -> None:
    """Simpler and faster; but the order then depends on the rows of others, and the digest does not."""
    taken = 0

    def words(original: Function, hit: Hit) -> Function:
        def words_at(key: bytes, start: int, count: int) -> Any:
            nonlocal taken
            hit()
            taken += count
            return original(bytes(32), taken - count, count)

        return words_at

    def anew(original: Function, hit: Hit) -> Function:
        def shuffle(*arguments: Any, **options: Any) -> Any:
            nonlocal taken
            taken = 0
            return original(*arguments, **options)

        return shuffle

    seams.replace(TAGS, words)
    seams.replace("privatile.client.order.shuffle:shuffle", anew)


@fault("tests/client/test_shuffle.py::test_each_record_is_anywhere_in_a_spilled_order")
def records_are_asked_in_the_order_of_the_file(seams: Seams) -> None:
    seams.change(
        TAGS, lambda words, key, start, count: np.arange(start, start + count, dtype=np.uint64) << np.uint64(40)
    )


@fault("tests/client/test_shuffle.py::test_the_order_does_not_depend_on_memory")
def what_is_spilled_comes_back_hidden(seams: Seams) -> None:
    """The words that hide a file are drawn anew when it is read."""
    seams.change(
        "privatile.client.order.spill:SpillFile.read", lambda words, *arguments, **options: words ^ np.uint64(1)
    )


@fault("tests/client/test_shuffle.py::test_spill_files_are_private_and_nameless")
def others_may_read_a_spill_file(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def opened(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
            handle: int = original(path, flags, mode, **options)
            if mode == 0o600 and (flags & os.O_TMPFILE) == os.O_TMPFILE:
                hit()
                os.fchmod(handle, 0o644)
            return handle

        return opened

    seams.replace("os:open", make)


@fault("tests/client/test_weight_classes.py::test_the_same_people_take_part_however_often_the_file_is_read")
def who_of_a_class_takes_part_is_drawn_anew(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def takes_part(weights: Any, high: float, draws: Any) -> Any:
            hit()
            return original(weights, high, np.frombuffer(secrets.token_bytes(8 * len(draws)), dtype=np.uint64))

        return takes_part

    seams.replace("privatile.client.order.weights:takes_part", make)


@fault("tests/client/test_weight_classes.py::test_a_record_takes_part_in_proportion_to_its_weight")
def everybody_of_a_class_takes_part(seams: Seams) -> None:
    seams.change(
        "privatile.client.order.weights:takes_part",
        lambda chosen, weights, high, draws: np.ones(len(draws), dtype=np.bool_),
    )


@fault("tests/client/test_weight_classes.py::test_a_weight_that_is_none_is_refused_without_being_shown")
def an_error_shows_a_weight(seams: Seams) -> None:
    from privatile.errors import DataError

    def make(original: Function, hit: Hit) -> Function:
        def checked(column: str, weights: Any, rows: int) -> Any:
            try:
                return original(column, weights, rows)
            except DataError as error:
                hit()
                raise DataError(f"{error} Its weight is {weights[weights < 0]}.") from None

        return checked

    seams.replace("privatile.client.order.weights:checked_weights", make)


# -- what was spent ----------------------------------------------------------------------------------------------------


@fault("tests/client/test_accounts.py::test_spending_again_adds_up")
def of_two_answers_the_larger_epsilon_counts(seams: Seams) -> None:
    def larger(most: float, spans: Any, records: int, within: tuple[int, int]) -> float:
        return min(most, max((epsilon for *_, epsilon in spans), default=0.0))

    seams.change(f"{DATASETS}:most_within", larger)


@fault("tests/client/test_overlap.py::test_three_splits_add_up_to_three")
def what_was_spent_under_another_name_does_not_count(seams: Seams) -> None:
    seams.change(f"{DATASETS}:spent_elsewhere", lambda spent, *arguments, **options: 0.0 if spent else spent)


@fault("tests/client/test_accounts.py::test_people_spend_across_columns")
def people_are_not_charged(seams: Seams) -> None:
    seams.skip(f"{BUDGETS}.charge")


@fault("tests/client/test_accounts.py::test_marking_spent_charges_people")
def people_are_not_charged_for_what_is_marked_as_spent(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def record(self: Any, question: Any, state: Any, stop: int, length: int, ones: Any, people: Any) -> Any:
            if question is None and people:
                hit()
                people = ()
            return original(self, question, state, stop, length, ones, people)

        return record

    seams.replace(f"{ACCOUNT}.record", make)


@fault("tests/client/test_accounts.py::test_people_add_up_to_their_limit")
def people_at_their_limit_may_answer(seams: Seams) -> None:
    seams.change(
        f"{ACCOUNT}.may_answer", lambda allowed, *arguments: allowed if allowed.all() else ~np.zeros_like(allowed)
    )


@fault("tests/client/test_restores.py::test_what_another_run_has_reserved_counts_as_spent")
def what_others_have_reserved_is_not_counted(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def spans_of(ledger: Any, dataset: int, *, reserved: bool, **options: Any) -> Any:
            if reserved:
                hit()
            return original(ledger, dataset, reserved=False, **options)

        return spans_of

    seams.replace(f"{DATASETS}:spans_of", make)


@fault("tests/client/test_accounts.py::test_a_limit_for_life_without_people")
def the_limit_for_life_is_forgotten(seams: Seams) -> None:
    seams.change(LIMIT, lambda limit, rules: math.inf if limit < math.inf else limit)


@fault("tests/client/test_restores.py::test_a_smaller_limit_holds_for_a_run_that_began_under_a_larger_one")
def the_limit_is_not_checked_at_an_answer(seams: Seams) -> None:
    without_limit_in(seams, f"{RESPONDER}._respond")


@fault("tests/client/test_restores.py::test_what_another_run_has_reserved_counts_as_spent")
def the_limit_is_not_checked_at_a_reservation(seams: Seams) -> None:
    without_limit_in(seams, f"{RESPONDER}.reserve")


@fault("tests/client/test_lifetime_budgets.py::test_sums_are_right")
def a_rollback_leaves_what_was_read_inside(seams: Seams) -> None:
    """What people have spent is remembered though it was undone."""

    def make(original: Function, hit: Hit) -> Function:
        @contextmanager
        def transaction(self: Any) -> Iterator[None]:
            before = self.rollbacks
            try:
                with original(self):
                    yield
            finally:
                if self.rollbacks != before:
                    hit()
                    self.rollbacks = before

        return transaction

    seams.replace(f"{LEDGER}.transaction", make)


@fault("tests/client/test_restores.py::test_the_limit_holds_where_missing_values_are_dropped")
def the_limit_is_not_checked_where_missing_values_are_dropped(seams: Seams) -> None:
    without_limit_in(seams, f"{RESPONDER}._respond", lambda responder, question: responder._drop)


@fault("tests/client/test_restores.py::test_what_another_process_answers_under_another_name_counts")
def what_another_process_has_entered_is_not_seen(seams: Seams) -> None:
    known: dict[int, float] = {}
    seams.change(
        "privatile.client.ledger.account:RecordLimit.spent_elsewhere",
        lambda spent, limit: known.setdefault(id(limit), spent),
    )


@fault("tests/client/test_restores.py::test_a_sum_may_pass_the_limit_by_rounding_and_by_no_more")
def a_limit_allows_a_hundredth_more(seams: Seams) -> None:
    seams.change(LIMIT, lambda limit, rules: limit * 1.01 if limit < math.inf else limit)


@fault("tests/client/test_restores.py::test_a_sum_may_pass_the_limit_by_rounding_and_by_no_more")
def a_sum_that_reaches_the_limit_is_refused_for_its_rounding(seams: Seams) -> None:
    seams.change(LIMIT, lambda limit, rules: limit if rules.max_epsilon is None else rules.max_epsilon)


# -- a ledger that was edited, copied or put back ----------------------------------------------------------------------


@fault("tests/client/test_seal.py::test_an_answer_that_was_altered_is_not_given_again")
def a_count_is_repeated_though_its_link_is_broken(seams: Seams) -> None:
    from privatile.errors import LedgerError

    seams.forgive(f"{LEDGER}.check_links", LedgerError)


@fault("tests/client/test_seal.py::test_an_edited_ledger_neither_verifies_nor_answers")
def a_broken_seal_is_passed_over(seams: Seams) -> None:
    from privatile.errors import LedgerError

    seams.forgive("privatile.client.ledger.integrity:Seal.check", LedgerError)


@fault("tests/client/test_seal.py::test_the_state_of_an_older_copy_cannot_be_put_into_a_newer_ledger")
def the_seal_does_not_cover_the_last_entry(seams: Seams) -> None:
    """Rows of an older copy go with answers of the newer one."""

    def make(original: Function, hit: Hit) -> Function:
        def expected(self: Any) -> bytes:
            hit()
            return hashlib.blake2b(self._sum.to_bytes(16, "little"), key=self._key, digest_size=16).digest()

        return expected

    seams.replace("privatile.client.ledger.integrity:Seal._expected", make)


@fault("tests/client/test_edited_files.py::test_people_removed_from_the_index_are_found_before_they_answer")
def the_index_of_people_is_not_compared(seams: Seams) -> None:
    from privatile.errors import LedgerError

    seams.forgive(f"{BUDGETS}.verify", LedgerError)


@fault("tests/client/test_edited_files.py::test_a_data_set_hidden_in_an_index_is_found")
def pages_of_the_ledger_are_not_compared(seams: Seams) -> None:
    from privatile.errors import LedgerError

    seams.forgive("privatile.client.ledger.ledger:check_pages", LedgerError)


@fault("tests/client/test_seal.py::test_a_trigger_made_while_a_process_answers_is_found_before_the_next_answer")
def tables_are_looked_at_when_a_ledger_is_opened_and_never_again(seams: Seams) -> None:
    seams.skip(f"{LEDGER}.check_tables")


@fault("tests/client/test_ledger.py::test_two_copies_in_use_are_noticed")
def another_past_than_the_one_that_was_seen_is_accepted(seams: Seams) -> None:
    from privatile.errors import LedgerError

    seams.forgive(f"{ACCOUNT}.confirm", LedgerError)


@fault("tests/client/test_marks.py::test_a_new_run_on_an_older_copy_of_the_ledger_is_refused_until_it_is_declared")
def an_older_copy_answers(seams: Seams) -> None:
    from privatile.errors import LedgerError

    seams.forgive(f"{MARK}.check", LedgerError)


@fault("tests/client/test_marks.py::test_the_mark_is_never_ahead_of_a_commit")
def the_mark_is_ahead_of_the_commit(seams: Seams) -> None:
    def ahead(position: Any, ledger: Any, *entry: Any) -> Any:
        ledger.mark.put(ledger.tip)
        return position._replace()

    seams.change(f"{LEDGER}.append", ahead)


@fault("tests/api/test_other_ledger.py::test_a_run_is_not_resumed_with_an_older_copy_of_its_ledger")
def a_run_goes_on_with_a_ledger_that_lacks_what_it_asked(seams: Seams) -> None:
    from privatile.errors import LedgerError

    for name in ("check_past", "check_begun", "check_link"):
        seams.forgive(f"privatile.client.ledger.restore:{name}", LedgerError)


@fault("tests/client/test_theft.py::test_a_ledger_without_its_key_answers_nobody_and_gets_no_new_one")
def a_ledger_without_its_key_gets_a_new_one(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def find(cls: Any, folder: Any, fingerprint: bytes, ledger: Any) -> Any:
            where = folder / f"ledger-{fingerprint.hex()}.key"
            if where.exists():
                return original(cls, folder, fingerprint, ledger)
            hit()
            return cls.new(folder)

        return find

    seams.replace(f"{KEYS}:LedgerKey.find", make)


def restored_state(seams: Seams, **forgotten: bool) -> None:
    (name,) = forgotten

    def forget(state: Any, account: Any) -> Any:
        return state._replace(**forgotten) if getattr(state, name) else state

    seams.change(f"{ACCOUNT}.state", forget)


@fault("tests/client/test_restores.py::test_a_second_studys_records_are_not_asked_again_after_a_restore")
def a_data_set_that_a_restore_has_lost_answers(seams: Seams) -> None:
    restored_state(seams, lost=False)


@fault("tests/client/test_restores.py::test_a_restored_ledger_is_marked_by_hand_where_there_is_no_coordinator")
def a_restored_run_goes_on_unproven(seams: Seams) -> None:
    restored_state(seams, unproven=False)


@fault("tests/client/test_restores.py::test_a_run_that_was_given_up_since_the_backup_gets_nothing_back")
def nothing_is_noted_of_a_run_that_was_given_up(seams: Seams) -> None:
    seams.skip(f"{KEYS}:LedgerKey.note_given_up")


@fault("tests/client/test_restores.py::test_a_second_restore_doubts_every_run_whatever_else_was_asked_meanwhile")
def a_second_restore_doubts_the_runs_of_new_data_sets_only(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def update(self: Any, table: str, change: str, values: Any, where: str, keys: Any) -> int:
            if where == "run = coalesce(?, run)":
                hit()
                return 0
            return int(original(self, table, change, values, where, keys))

        return update

    seams.replace(f"{LEDGER}.update", make)


@fault("tests/client/test_restores.py::test_people_whose_records_a_run_had_reserved_may_have_answered_another")
def people_stay_reserved_over_a_restore(seams: Seams) -> None:
    """A person whose record one run had reserved may have answered another since."""

    def make(original: Function, hit: Hit) -> Function:
        def mark_restored(ledger: Any, *arguments: Any) -> Any:
            with ledger.transaction():
                rows = ledger.execute("SELECT id, person FROM datasets WHERE person IS NOT NULL").fetchall()
                ledger.update("datasets", "person = NULL", (), "1", ())
            told = original(ledger, *arguments)
            with ledger.transaction():
                for dataset, person in rows:
                    hit()
                    ledger.update("datasets", "person = ?", (person,), "id = ?", (dataset,))
            return told

        return mark_restored

    seams.replace("privatile.client.ledger.restore:mark_restored", make)
