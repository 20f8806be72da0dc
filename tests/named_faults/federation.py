"""What must hold between organizations: sites, coordinator, wire, run file, record; nothing here needs a broker."""

import base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from privatile.errors import Equivocation, InputError, NotSigned, ProtocolError, StoreError
from privatile.federation.coordinator.intake import Verdict
from privatile.federation.wire import Hello, RoundAnswers, question_digest, read_message
from privatile.records import Checks
from tests.named_faults import Seams, fault

Function = Callable[..., Any]
Hit = Callable[[], None]

INTAKE = "privatile.federation.coordinator.intake:AnswerIntake"
SITE = "privatile.federation.site.responder:SiteResponder"
WIRE = "privatile.federation.wire"
RECORDS = "privatile.records"

# -- a site


@fault("tests/federation/test_order.py::test_a_count_is_in_the_ledger_before_it_is_sent")
def a_count_is_sent_before_it_is_in_the_ledger(seams: Seams) -> None:
    """The transaction of one answer is committed with the next."""
    under_way = ExitStack()

    def make(original: Function, hit: Hit) -> Function:
        def answer(self: Any, questions: Any) -> Any:
            under_way.close()
            under_way.enter_context(self.ledger.transaction())
            hit()
            return original(self, questions)

        return answer

    seams.replace(f"{SITE}.answer", make)


@fault("tests/federation/test_agreed_records.py::test_messages_answered_side_by_side_ask_no_more_records_than_agreed")
def a_site_answers_more_records_than_it_agreed_to(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def begin(self: Any, client: str, run: str, responder: Any, records: int) -> None:
            hit()
            original(self, client, run, responder, 10 * records)

        return begin

    seams.replace(f"{SITE}.__init__", make)


@fault("tests/federation/test_levels.py::test_a_site_answers_only_its_own_study")
def a_site_answers_what_its_study_does_not_ask(seams: Seams) -> None:
    seams.skip("privatile.federation.site.limits:check_questions")


@fault("tests/federation/test_one_ledger.py::test_the_limit_is_the_sites_own")
def a_sites_own_limit_of_epsilon_is_ignored(seams: Seams) -> None:
    limits = "privatile.federation.site.limits:SiteLimits"
    seams.change(f"{limits}.epsilon_refusals", lambda found, *_: [] if found else found)


@fault("tests/federation/test_one_ledger.py::test_two_names_in_one_study_are_refused")
def one_site_is_two_clients_of_a_study(seams: Seams) -> None:
    seams.skip("privatile.federation.site.folder:Site.check_one_client")


@fault("tests/federation/test_past.py::test_a_site_with_a_new_or_an_older_ledger_does_not_answer")
def an_older_ledger_answers(seams: Seams) -> None:
    seams.skip("privatile.client.ledger.account:Account.confirm")


@fault("tests/federation/test_past.py::test_records_whose_answer_came_too_late_are_not_asked_again_after_a_restore")
def what_a_restored_ledger_lost_is_asked_again(seams: Seams) -> None:
    seams.skip("privatile.client.responder:Responder.mark_spent")


@fault("tests/federation/test_past.py::test_a_late_answer_frames_nobody")
def a_site_answers_a_round_before_one_that_it_has_answered(seams: Seams) -> None:
    """The coordinator has counted on the absence of that answer, and asks its records again."""
    seams.change("privatile.client.ledger.account:Account.has_answered", lambda *_: True)


@fault("tests/federation/test_open_people.py::test_another_question_of_the_same_round_is_refused")
def another_question_of_an_open_round_gets_an_answer(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        given: list[Any] = []

        def message(self: Any, study: str, questions: Any) -> Any:
            try:
                given.append(original(self, study, questions))
            except Equivocation:
                hit()
            return given[-1]

        return message

    seams.replace("privatile.federation.site.responder:OpenSiteResponder.message", make)


# -- which answers count


def _offer_changed(seams: Seams, outcome: str, reason: str, change: Callable[[RoundAnswers, Any], Any]) -> None:
    """Let an answer that the intake judges so be judged again after a change."""

    def make(original: Function, hit: Hit) -> Function:
        def offer(self: Any, client: str, payload: bytes, **options: Any) -> Verdict:
            verdict: Verdict = original(self, client, payload, **options)
            if verdict.outcome != outcome or reason not in verdict.reason or not self.is_open:
                return verdict

            def read(*arguments: Any) -> Any:
                return change(read_message(*arguments), self.questions[client])  # type: ignore[arg-type]

            hit()
            again: Verdict = original(self, client, payload, read=read)
            return again

        return offer

    seams.replace(f"{INTAKE}.offer", make)


@fault("tests/federation/test_answer_intake.py::test_what_does_not_count")
def a_late_answer_is_counted(seams: Seams) -> None:
    def change(message: RoundAnswers, asked: Any) -> Any:
        digest = question_digest(message.study, asked)
        return msgspec.structs.replace(message, round=asked[0].round, question=digest)

    _offer_changed(seams, "late", "", change)


@fault("tests/federation/test_binding.py::test_an_answer_to_another_question_does_not_count")
def an_answer_to_another_question_is_counted(seams: Seams) -> None:
    def change(message: RoundAnswers, asked: Any) -> Any:
        return msgspec.structs.replace(message, question=question_digest(message.study, asked))

    _offer_changed(seams, "rejected", "another question", change)


@fault("tests/federation/test_answer_intake.py::test_two_different_answers_are_a_fork_and_neither_counts")
def a_second_answer_to_a_round_is_taken_for_the_first(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def offer(self: Any, client: str, payload: bytes, **options: Any) -> Verdict:
            if client in self.answers:
                hit()
                return Verdict("duplicate")
            verdict: Verdict = original(self, client, payload, **options)
            return verdict

        return offer

    seams.replace(f"{INTAKE}.offer", make)


@fault("tests/federation/test_answer_intake.py::test_offences_lead_to_quarantine_until_readmitted")
def a_client_in_quarantine_is_counted(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def offer(self: Any, client: str, payload: bytes, **options: Any) -> Verdict:
            reason = self.quarantined.get(client, "")
            if self.readmit(client):
                hit()
            verdict: Verdict = original(self, client, payload, **options)
            if reason:
                self.quarantine(client, reason)
            return verdict

        return offer

    seams.replace(f"{INTAKE}.offer", make)


@fault("tests/federation/test_missed_rounds.py::test_an_answer_lost_after_the_ledgers_commit_is_spent")
def a_late_answer_is_asked_again(seams: Seams) -> None:
    """As if the links of a client showed that no coin was drawn in the rounds that it missed."""
    seams.change(f"{INTAKE}.unspent", lambda found, intake: found | intake.answers.keys())


@fault("tests/federation/test_answer_intake.py::test_an_answer_names_the_key_that_signed_it")
def an_answer_is_kept_under_the_key_of_later(seams: Seams) -> None:
    keys: dict[str, str] = {}

    def make_keys(original: Function, hit: Hit) -> Function:
        def replace_signers(self: Any, signers: Any) -> Any:
            keys.update(signers)
            return original(self, signers)

        return replace_signers

    def make_answers(original: Function, hit: Hit) -> Function:
        def answers(self: Any) -> Any:
            found = original(self)
            if keys.keys() & found.keys():
                hit()
            return {client: one._replace(signer=keys.get(client, one.signer)) for client, one in found.items()}

        return answers

    seams.replace(f"{INTAKE}.replace_signers", make_keys)
    seams.replace(f"{INTAKE}.answers", make_answers)


@fault(
    "tests/federation/test_journal.py"
    "::test_answers_of_silent_clients_that_came_and_did_not_count_are_kept_with_the_reason"
)
def how_far_late_answers_went_is_forgotten_by_a_restart(seams: Seams) -> None:
    """A ledger from before such an answer would then pass for the newest."""
    seams.skip("privatile.federation.coordinator.journal:Journal.set_late_links")


@fault("tests/federation/test_journal.py::test_a_coordinator_that_starts_again_shows_clients_the_links_of_its_file")
def what_was_seen_of_ledgers_is_forgotten_by_a_restart(seams: Seams) -> None:
    seams.change("privatile.federation.coordinator.journal:Journal.links", lambda *_: {})


# -- hellos


@fault("tests/federation/test_answer_intake.py::test_a_recorded_hello_is_not_fresh_and_moves_no_ledger")
def a_recorded_hello_is_fresh(seams: Seams) -> None:
    """A nonce counts again after it was echoed."""

    def make(original: Function, hit: Hit) -> Function:
        def greet(self: Any, client: str, payload: bytes, done: int, nonce: str) -> Any:
            found = original(self, client, payload, done, nonce)
            echo = msgspec.json.decode(payload.rpartition(b"\n")[0]).get("echo")
            if found is None or found.fresh or echo is None:
                return found
            hit()
            original(self, client, payload, done, echo)
            return original(self, client, payload, done, nonce)

        return greet

    seams.replace(f"{INTAKE}.greet", make)


@fault("tests/federation/test_answer_intake.py::test_a_restore_waits_while_an_answer_of_the_lost_ledger_stands")
def a_restore_is_believed_while_an_answer_of_the_lost_ledger_stands(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def greet(self: Any, client: str, payload: bytes, done: int, nonce: str) -> Any:
            found = original(self, client, payload, done, nonce)
            hello = msgspec.json.decode(payload.rpartition(b"\n")[0], type=Hello)
            if found is None or not found.fresh or hello.restored is None or client not in self.answers:
                return found
            hit()
            self.relink(client, hello.ledger, done + 1)
            return found._replace(restored=hello.ledger)

        return greet

    seams.replace(f"{INTAKE}.greet", make)


@fault("tests/federation/test_alarms.py::test_only_two_processes_that_hear_each_other_are_two_holders")
def two_holders_of_one_key_are_not_seen(seams: Seams) -> None:
    seams.change("privatile.federation.coordinator.intake:Holders.see", lambda *_, **options: False)


# -- rounds and the run's file


@fault("tests/federation/test_order.py::test_counts_signatures_and_links_are_one_transaction")
def counts_and_evidence_are_two_transactions(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def accept(self: Any, counts: Any, also: Any = (), *arguments: Any, **options: Any) -> None:
            hit()
            original(self, counts, (), *arguments, **options)
            self.store.execute(also)

        return accept

    seams.replace("privatile.run.coordinator:Coordinator.accept", make)


@fault(
    "tests/run/test_transcript.py::test_a_run_that_moves_to_another_machine_asks_the_open_round_again_to_the_last_bit"
)
def a_question_is_asked_before_it_is_in_the_file(seams: Seams) -> None:
    seams.change("privatile.run.run_file:opening", lambda *_: [])


@fault("tests/run/test_run_file_and_coordinator.py::test_a_run_is_not_finished_before_its_last_round")
def a_run_is_finished_before_its_last_round(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def finish(self: Any, why: Any = None) -> None:
            hit()
            self.store.finish(why)

        return finish

    seams.replace("privatile.run.coordinator:Coordinator.finish", make)


@fault("tests/federation/test_lost_connections.py::test_a_deadline_begins_anew_after_a_lost_connection_or_a_restart")
def a_round_closes_before_its_deadline(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def advance(rule: Any, state: Any, now: float, present: Any) -> Any:
            if rule.agreed and now < state.since + rule.seconds:
                hit()
                now = state.since + rule.seconds
            return original(rule, state, now, present)

        return advance

    seams.replace("privatile.run.rounds:advance", make)


@fault("tests/federation/test_lost_connections.py::test_a_deadline_begins_anew_after_a_lost_connection_or_a_restart")
def a_deadline_goes_on_while_the_connection_is_lost(seams: Seams) -> None:
    """As if it were measured from the moment in which the round was asked first."""
    asked_at: dict[int, float] = {}

    def make(original: Function, hit: Hit) -> Function:
        def advance(rule: Any, state: Any, now: float, present: Any) -> Any:
            since = asked_at.setdefault(state.number, now)
            if rule.agreed and now - state.since < rule.seconds <= now - since:
                hit()
                state = replace(state, since=since)
            return original(rule, state, now, present)

        return advance

    seams.replace("privatile.run.rounds:advance", make)


@fault("tests/federation/test_alarms.py::test_an_aborted_run_stays_aborted_whatever_is_noted_after_it")
def an_aborted_run_goes_on(seams: Seams) -> None:
    seams.change("privatile.run.state:is_aborted", lambda *_: False)


# -- what crosses the wire


@fault("tests/federation/test_answer_intake.py::test_what_does_not_count")
def a_signature_is_not_checked(seams: Seams) -> None:
    seams.change("privatile.records.keys:verify", lambda *_: True)


@fault("tests/federation/test_wire.py::test_nothing_is_done_with_a_message_that_is_too_large")
def a_message_is_read_before_its_size_is_known(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def read_signed(payload: bytes, signer: str, largest: int, decoder: Any) -> Any:
            if len(payload) > largest:
                hit()
            message = original(payload, signer, 1 << 40, decoder)
            return message if len(payload) <= largest else original(payload, signer, largest, decoder)

        return read_signed

    seams.replace(f"{WIRE}:read_signed", make)


@fault("tests/federation/test_answer_intake.py::test_rubbish_on_an_answer_subject_never_harms_the_client_it_names")
def a_client_is_blamed_for_what_it_has_not_signed(seams: Seams) -> None:
    """As if the form were looked at before the signature."""

    def make(original: Function, hit: Hit) -> Function:
        def read_signed(*arguments: Any) -> Any:
            try:
                return original(*arguments)
            except NotSigned as error:
                hit()
                raise ProtocolError(str(error)) from None

        return read_signed

    seams.replace(f"{WIRE}:read_signed", make)


@fault("tests/federation/test_wire.py::test_a_signature_has_one_text")
def a_signature_has_several_texts(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def read_signed(payload: bytes, *arguments: Any) -> Any:
            body, separator, tail = payload.rpartition(b"\n")
            same = base64.b64encode(base64.b64decode(tail))
            if same != tail:
                hit()
            return original(body + separator + same, *arguments)

        return read_signed

    seams.replace(f"{WIRE}:read_signed", make)


@fault("tests/federation/test_lost_connections.py::test_a_broker_that_keeps_no_question_is_left")
def a_broker_that_keeps_no_question_is_believed(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        async def look_up(self: Any, transport: Any) -> bool:
            if not await original(self, transport):
                hit()
            return True

        return look_up

    seams.replace("privatile.federation.site.service:ClientService._look_up", make)


# -- records


def _drop_failures(seams: Seams, check: str, about: str = "") -> None:
    """Let a check of a record find nothing wrong `about` something."""

    def make(original: Function, hit: Hit) -> Function:
        def checked(checks: Checks, *arguments: Any, **options: Any) -> Any:
            own = Checks()
            found = original(own, *arguments, **options)
            dropped = [text for text in own.failed if about in text]
            if dropped:
                hit()
            checks.failed += [text for text in own.failed if text not in dropped]
            checks.passed += own.passed
            checks.flagged += own.flagged
            checks.not_checked += own.not_checked
            return found

        return checked

    seams.replace(f"{RECORDS}.verification:{check}", make)


@fault("tests/federation/test_binding.py::test_a_coordinator_that_records_another_question_is_found")
def counts_are_not_held_against_the_signatures_of_clients(seams: Seams) -> None:
    seams.change(f"{RECORDS}.signing:is_signed", lambda signed, payload, *_: signed or b'"kind":"answer"' in payload)


@fault("tests/federation/test_binding.py::test_a_coordinator_that_records_both_questions_is_found")
def a_recorded_question_need_not_be_the_designs(seams: Seams) -> None:
    seams.change("privatile.estimator.plan:difference", lambda *_: "")


@fault("tests/federation/test_two_intervals.py::test_a_forged_second_interval_or_set_is_refused")
def a_figure_need_not_follow_from_the_counts(seams: Seams) -> None:
    _drop_failures(seams, "check_recomputed")


@fault("tests/survey/test_record.py::test_an_altered_record_is_found")
def a_record_need_not_be_signed(seams: Seams) -> None:
    _drop_failures(seams, "check_signature")


@fault("tests/federation/test_open_study.py::test_an_end_by_a_date_that_has_not_come_is_refused")
def a_run_may_end_in_the_future(seams: Seams) -> None:
    _drop_failures(seams, "check_end")


@fault(
    "tests/federation/test_binding.py::test_a_coordinator_that_is_silent_about_a_client_beyond_the_patience_is_found"
)
def a_client_may_be_called_silent_for_ever(seams: Seams) -> None:
    _drop_failures(seams, "check_silence")


@fault(
    "tests/federation/test_missed_rounds.py"
    "::test_a_coordinator_that_gives_lost_answers_back_is_refused_by_the_site_and_found"
)
def records_may_be_asked_again_whatever_the_links_show(seams: Seams) -> None:
    _drop_failures(seams, "check_links", "records of missed rounds")


@fault("tests/federation/test_binding.py::test_a_site_does_not_countersign_a_question_that_it_was_not_asked")
def a_site_countersigns_what_its_ledger_does_not_hold(seams: Seams) -> None:
    seams.change(f"{RECORDS}.countersignature:compare_with_ledger", lambda found, *_: (found[0], []))


@fault(
    "tests/federation/test_run_file_of_others.py::test_a_site_countersigns_the_file_that_the_record_names_and_no_other"
)
def a_site_countersigns_another_file_than_the_one_that_was_verified(seams: Seams) -> None:
    """As if the digest of a run's file were taken once."""
    known: dict[str, str] = {}
    seams.change(f"{RECORDS}.record:transcript_digest", lambda found, store: known.setdefault(store.run, found))


@fault("tests/federation/test_run_file_of_others.py::test_a_run_file_that_shows_other_rounds_at_every_look_is_refused")
def a_run_file_may_hold_views(seams: Seams) -> None:
    seams.skip("privatile.run.tables:check_file")


@fault("tests/federation/test_run_file_of_others.py::test_a_file_is_verified_as_it_was_at_one_moment")
def a_file_is_verified_as_it_is_at_several_moments(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        @contextmanager
        def frozen(cls: Any, path: Any) -> Iterator[Any]:
            hit()
            with cls.open(path, read_only=True) as store:
                yield store

        return frozen

    seams.replace("privatile.run.run_file:RunStore.frozen", make)


# -- set-up, backups, audit


@fault("tests/federation/test_set_up.py::test_private_files_are_private_and_nothing_sent_holds_a_secret")
def a_secret_can_be_read_by_others(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def write_private(path: Any, content: bytes) -> None:
            original(path, content)
            path.chmod(0o644)
            hit()

        return write_private

    seams.replace("privatile.run.files:write_private", make)
    seams.replace("privatile.run.files:broken_mode", lambda original, hit: lambda path: [])


@fault("tests/federation/test_lock.py::test_a_file_that_was_removed_while_it_was_opened_is_no_lock")
def two_coordinators_hold_one_folder(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        @contextmanager
        def lock_folder(path: Any, holder: str = "coordinator") -> Iterator[None]:
            try:
                with original(path, holder):
                    yield
            except InputError:
                hit()
                yield

        return lock_folder

    seams.replace("privatile.run.locks:lock_folder", make)


@fault("tests/federation/test_set_up.py::test_the_authority_signs_brokers_and_no_other_authority")
def an_authority_may_make_others(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def constraints(ca: bool, path_length: int | None) -> Any:
            if path_length is not None:
                hit()
            return original(ca, None)

        return constraints

    seams.replace("cryptography.x509:BasicConstraints", make)


@fault("tests/federation/test_backup.py::test_a_damaged_file_gives_no_copy")
def a_damaged_copy_is_given_out(seams: Seams) -> None:
    def make(original: Function, hit: Hit) -> Function:
        def copy_database(path: Any, to: Any, **options: Any) -> str:
            try:
                found: str = original(path, to, **options)
            except StoreError:
                hit()
                to.with_name(f"{to.name}.unfinished").rename(to)
                return str(to.name)
            return found

        return copy_database

    seams.replace("privatile.federation.operations.commands:copy_database", make)


@fault("tests/federation/test_audit.py::test_a_time_in_the_brokers_log_is_no_value")
def an_audit_overlooks_a_value_in_a_log(seams: Seams) -> None:
    seams.change("privatile.federation.audit.audit:has_trace", lambda *_: False)
