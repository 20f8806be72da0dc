"""What must hold so that an interval covers and says what it is, from the estimator to pages and plans."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.named_faults import Seams, fault

Original = Callable[..., Any]
Hit = Callable[[], None]

RESPONSE = "privatile.core.mechanism:RandomizedResponse"
RESULT = "privatile.result.result:QuantileResult"


# -- answers to a state ----------------------------------------------------------------------------------------------


@fault("tests/core/test_mechanism.py::test_realised_epsilon_is_within_1e_10")
def epsilon_is_taken_for_the_truth_rate(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def from_epsilon(cls: Any, epsilon: float) -> Any:
            if not 0.0 < epsilon < 1.0:
                return original(cls, epsilon)
            hit()
            return cls(epsilon)

        return from_epsilon

    seams.replace(f"{RESPONSE}.from_epsilon", make)


@fault("tests/core/test_mechanism.py::test_debiasing_inverts_the_expected_count")
def an_answer_is_not_debiased(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def debias(self: Any, ones: int, length: int) -> float:
            hit()
            return ones / length

        return debias

    seams.replace(f"{RESPONSE}.debias", make)


@fault("tests/golden/test_replays.py::test_a_stored_run_decides_and_ends_as_it_did[rounds]")
def the_weight_of_a_client_is_forgotten_in_a_step(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def drift(state: Any, plan: Any) -> Any:
            hit()
            rows = zip(plan.clients, state.means, strict=True)
            return sum(mean - (1.0 - plan.level_of(client)) for client, mean in rows) / len(plan.clients)

        return drift

    seams.replace("privatile.estimator.plan:drift", make)


@fault("tests/golden/test_replays.py::test_a_stored_run_decides_and_ends_as_it_did[straddle, weights, low level]")
def the_weight_of_a_client_is_forgotten_in_the_tests(seams: Seams) -> None:
    """The tests hear the plain mean of the clients."""

    def make(original: Original, hit: Hit) -> Original:
        def add_round(
            pools: Any, stage: str, query: float, lengths: Any, means: Any, clients: Any, level: float, **more: Any
        ) -> Any:
            hit()
            equal = [replace(client, weight=1.0 / len(clients)) for client in clients]
            return original(pools, stage, query, lengths, means, equal, level, **more)

        return add_round

    seams.replace("privatile.estimator.pools:add_round", make)


@fault("tests/estimator/test_step.py::test_dropout_does_not_change_the_estimand")
def weights_are_renormalised_while_a_client_is_silent(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def drift(state: Any, plan: Any) -> float:
            came = [used == 1 for used in state.used]
            if all(came):
                return float(original(state, plan))
            hit()
            rows = zip(plan.clients, state.means, came, strict=True)
            parts = [
                (client.weight, client.weight * (mean - (1.0 - plan.level_of(client))))
                for client, mean, here in rows
                if here
            ]
            return math.fsum(part for _, part in parts) / math.fsum(weight for weight, _ in parts)

        return drift

    seams.replace("privatile.estimator.plan:drift", make)


@fault("tests/estimator/test_step.py::test_a_silent_client_keeps_its_weight_and_its_noise_counts_squared")
def a_repeated_answer_counts_as_a_new_one(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def round_weight(state: Any) -> float:
            if any(used > 1 for used in state.used):
                hit()
            return math.fsum(noise for used, noise in zip(state.used, state.noise, strict=True) if used)

        return round_weight

    seams.replace("privatile.estimator.plan:round_weight", make)


@fault("tests/estimator/test_attendance.py::test_a_pool_stands_at_its_outermost_question")
def an_answer_that_waited_stands_at_the_innermost_question(seams: Seams) -> None:
    """It would be evidence against values that it says nothing about."""

    def make(original: Original, hit: Hit) -> Original:
        def outermost(stage: str, places: Any) -> float:
            if len(set(places)) > 1:
                hit()
            return float(original({"low": "high", "high": "low"}.get(stage, stage), places))

        return outermost

    seams.replace("privatile.estimator.pools:outermost", make)


@fault("tests/estimator/test_auto.py::test_missed_answers_widen_the_interval_and_none_is_used_twice")
def records_of_missed_rounds_are_asked_again(seams: Seams) -> None:
    """Whether or not the client's ledger shows that no coin was drawn."""

    def make(original: Original, hit: Hit) -> Original:
        def after(self: Any, length: int, *, answered: bool, unspent: bool = False) -> Any:
            if answered and self.missed and not unspent:
                hit()
            return original(self, length, answered=answered, unspent=answered)

        return after

    seams.replace("privatile.estimator.plan:Records.after", make)


@fault("tests/run/test_transcript.py::test_every_round_of_every_stage_refuses_a_moved_question")
def a_replay_does_not_compare_the_stored_question(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def difference(*given: Any) -> str:
            if original(*given):
                hit()
            return ""

        return difference

    seams.replace("privatile.estimator.plan:difference", make)


# -- a state to an interval ------------------------------------------------------------------------------------------


@fault("tests/inference/test_any_shape.py::test_critical_values_are_nested_and_spend_the_error")
def critical_values_are_those_of_another_confidence(seams: Seams) -> None:
    """Both sides' error is given to each."""

    def make(original: Original, hit: Hit) -> Original:
        def critical_values(alpha: float) -> Any:
            hit()
            return original(min(2.0 * alpha, 0.49))

        return critical_values

    seams.replace("privatile.inference.any_shape:critical_values", make)


@fault("tests/inference/test_any_shape.py::test_a_side_errs_at_most_in_its_share_of_runs_and_the_controls_in_more")
def the_innermost_accepted_candidate_is_the_end(seams: Seams) -> None:
    """Instead of the hull from outside: the best of many tests."""

    def make(original: Original, hit: Hit) -> Original:
        def hull_from_outside(places: Any, accepted: Any) -> float:
            hit()
            return float(np.where(accepted & np.isfinite(places), places, -np.inf).max())

        return hull_from_outside

    seams.replace("privatile.inference.any_shape:hull_from_outside", make)


@fault("tests/inference/test_any_shape.py::test_a_side_errs_at_most_in_its_share_of_runs_and_the_controls_in_more")
def an_answer_is_not_taken_off_the_budget_of_a_test(seams: Seams) -> None:
    """A test then spends its budget several times."""

    def make(original: Original, hit: Hit) -> Original:
        def add_answer(candidates: Any, place: float, share: float, score: float, last: bool) -> None:
            before = candidates.budgets.copy()
            original(candidates, place, share, score, last)
            if not last:
                hit()
                candidates.budgets[:] = before

        return add_answer

    seams.replace("privatile.estimator.straddle:add_answer", make)


@fault("tests/inference/test_any_shape.py::test_whole_runs_hold_on_a_normal_population_within_the_promised_width")
def one_side_is_tested_with_answers_of_the_other(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def weigh_answer(rules: Any, run: Any, side: Any, outward: float, heard: Any) -> None:
            hit()
            original(rules, run, run.sides[1 if side is run.sides[0] else 0], outward, heard)

        return weigh_answer

    seams.replace("privatile.estimator.straddle:weigh_answer", make)


@fault("tests/inference/test_any_shape.py::test_ends_that_cross_give_both_and_never_a_point[1.4]")
def ends_that_cross_give_a_point(seams: Seams) -> None:
    """Answers that contradict each other look like certainty."""

    def make(original: Original, hit: Hit) -> Original:
        def around(self: Any, center: float) -> Any:
            inside, ends = original(self, center)
            if not self.crossed(0.95):
                return inside, ends
            hit()
            return inside, lambda level: (inside, inside)

        return around

    seams.replace("privatile.inference.any_shape:AnyShape.around", make)


@fault("tests/inference/test_anytime.py::test_the_mixture_bound_holds_at_all_looks_and_the_fixed_one_does_not")
def a_confidence_sequence_spends_its_error_twice(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def threshold(alpha: float) -> float:
            hit()
            return float(original(2.0 * alpha))

        return threshold

    seams.replace("privatile.inference.anytime:threshold", make)


@fault("tests/golden/test_replays.py::test_a_stored_run_decides_and_ends_as_it_did[tuned, until a width]")
def a_run_that_stops_by_its_width_has_the_interval_for_its_planned_end(seams: Seams) -> None:
    """Whoever may stop when it suits them is fooled by it."""

    def make(original: Original, hit: Hit) -> Original:
        def read(settings: Any, *given: Any, **more: Any) -> Any:
            if settings.until_width is not None:
                hit()
            return original(replace(settings, until_width=None), *given, **more)

        return read

    seams.replace("privatile.inference.reading:read", make)


@fault("tests/inference/test_curve.py::test_fieller_interval_and_p_value_agree[0.3]")
def the_error_of_the_slope_is_left_out(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def fieller_reach(z: Any, slope_error: Any) -> Any:
            hit()
            return original(z, 0.0 * np.asarray(slope_error))

        return fieller_reach

    seams.replace("privatile.laws.ratio:fieller_reach", make)


@fault("tests/inference/test_inference.py::test_endpoint_variance_is_the_formula")
def the_variance_of_a_population_is_used_for_a_file(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def endpoint_variance(*given: Any) -> float:
            hit()
            return 1.0

        return endpoint_variance

    seams.replace("privatile.inference.self_normalized:endpoint_variance", make)


@fault("tests/inference/test_honest_ends.py::test_a_range_that_excludes_the_answer_gives_no_certainty")
def a_centre_outside_the_range_takes_only_its_point_along(seams: Seams) -> None:
    """The interval shrinks where the stated range excludes the quantile."""

    def make(original: Original, hit: Hit) -> Original:
        def clip_to_range(inference: Any, scale: Any) -> Any:
            found = original(inference, scale)
            if found.center == inference.center and math.isfinite(found.quantile(0.95)):
                return found
            hit()
            return replace(found, ends=lambda level: (found.center, found.center))

        return clip_to_range

    seams.replace("privatile.inference.inference:clip_to_range", make)


@fault("tests/golden/test_replays.py::test_a_stored_run_decides_and_ends_as_it_did[straddle, three levels at once]")
def simultaneous_levels_each_have_the_whole_error(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def level_each(confidence_level: float, members: int) -> float:
            if members > 1:
                hit()
            return confidence_level

        return level_each

    seams.replace("privatile.inference.inference:level_each", make)


@fault("tests/result/test_result.py::test_the_test_of_a_value_inverts_the_displayed_interval")
def a_p_value_is_that_of_one_side(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def p_value_of(inside: Any) -> float:
            hit()
            return 0.5 * float(original(inside))

        return p_value_of

    seams.replace("privatile.inference.inference:p_value_of", make)


# -- an interval to words --------------------------------------------------------------------------------------------


@fault("tests/api/test_api.py::test_not_private_must_be_named_and_is_marked")
def the_most_important_caveat_is_lost(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def most_important_first(*found: Any) -> Any:
            hit()
            return original(*found)[1:]

        return most_important_first

    seams.replace("privatile.result.caveats:most_important_first", make)


@fault("tests/result/test_rounding.py::test_ends_are_rounded_outward_and_stay_in_the_range")
def ends_are_rounded_inward(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def outward_to(value: float, digits: int, *, up: bool) -> float:
            hit()
            return float(original(value, digits, up=not up))

        return outward_to

    seams.replace("privatile.result.shown:outward_to", make)


@fault("tests/result/test_result.py::test_numbers_are_shown_with_the_digits_they_deserve")
def numbers_have_more_digits_than_they_deserve(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def digits_shown(value: float, width: float) -> int:
            hit()
            return int(original(value, width)) + 2

        return digits_shown

    seams.replace("privatile.result.shown:digits_shown", make)


@fault("tests/result/test_both_readings.py::test_a_declared_grid_leaves_a_few_values_and_the_interval_beside_them")
def a_declared_grid_is_ignored(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def grid_values(*given: Any) -> Any:
            hit()
            return None, ""

        return grid_values

    seams.replace("privatile.result.summary:grid_values", make)


@fault("tests/result/test_first_interval.py::test_while_a_run_goes_on_all_places_show_one_interval_under_one_condition")
def the_condition_of_the_first_interval_is_lost(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def shown_of(result: Any) -> Any:
            hit()
            found = original(result)
            return replace(found, first=replace(found.first, condition="", condition_code=""))

        return shown_of

    seams.replace("privatile.result.shown:shown_of", make)


@fault("tests/report/test_run_page.py::test_while_a_run_goes_on_its_page_shows_what_is_valid_at_every_look")
def a_run_that_goes_on_is_shown_as_if_it_were_over(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def unfinished(result: Any, planned: int) -> Any:
            hit()
            return result

        return unfinished

    seams.replace("privatile.result.summary:unfinished", make)


@fault("tests/report/test_run_page.py::test_what_is_chosen_after_the_answers_came_is_said")
def that_a_report_was_chosen_after_the_answers_is_not_said(seams: Seams) -> None:
    """As if the run had been asked as it is reported."""

    def make(original: Original, hit: Hit) -> Original:
        def chosen_later(*settings: Any) -> None:
            if original(*settings) is not None:
                hit()

        return chosen_later

    seams.replace("privatile.result.summary:chosen_later", make)


@fault("tests/result/test_compare.py::test_any_shape_intervals_are_compared_by_their_ends")
def a_difference_of_any_shape_intervals_is_joined_like_normal_errors(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def any_shape(*results: Any) -> bool:
            if original(*results):
                hit()
            return False

        return any_shape

    seams.replace("privatile.result.compare:any_shape", make)


# -- before and beside -----------------------------------------------------------------------------------------------


@fault("tests/planning/test_beforehand.py::test_a_dry_run_and_the_result_say_the_same")
def plan_and_run_disagree_about_the_rounds(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def preview(*given: Any, **more: Any) -> Any:
            found = original(*given, **more)
            hit()
            return replace(found, rounds=tuple(rounds + 1 for rounds in found.rounds))

        return preview

    seams.replace("privatile.planning.preview:preview", make)


@fault("tests/planning/test_honest.py::test_the_people_that_a_plan_names_give_the_width")
def a_plan_promises_half_the_width(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def rank_width(*given: Any) -> float:
            hit()
            return 0.5 * float(original(*given))

        return rank_width

    seams.replace("privatile.planning.widths:rank_width", make)


@fault("tests/api/test_survey_weights.py::test_sizes_are_the_default_and_never_tell_who_had_answered_elsewhere")
def weights_by_size_are_forgotten(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def weights_of(self: Any, records: Any) -> Any:
            if len(records) > 1:
                hit()
            return dict.fromkeys(records, 1.0 / len(records))

        return weights_of

    seams.replace("privatile.planning.options:Options.weights_of", make)


@fault("tests/api/test_groups.py::test_simultaneous_intervals_are_those_of_the_root_of_the_confidence")
def groups_together_each_have_the_whole_error(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def settings_of_each(confidence_level: float, members: int, *, simultaneous: bool) -> Any:
            if simultaneous and members > 1:
                hit()
            return original(confidence_level, members, simultaneous=False)

        return settings_of_each

    seams.replace("privatile.inference.inference:settings_of_each", make)


@fault("tests/report/test_run_charts.py::test_no_drawn_interval_is_narrower_than_the_result")
def a_chart_draws_its_interval_rounded_inward(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def to_dict(self: Any) -> Any:
            hit()
            digits = 2 - math.floor(math.log10(self.high[-1] - self.low[-1]))
            low, high = np.ceil(self.low * 10.0**digits), np.floor(self.high * 10.0**digits)
            return {**original(self), "low": (low / 10.0**digits).tolist(), "high": (high / 10.0**digits).tolist()}

        return to_dict

    seams.replace("privatile.report.path:ThinPath.to_dict", make)


@fault("tests/laws/test_critical.py::test_sampling_without_replacement_gives_the_lowered_endpoint")
def a_critical_value_forgets_that_records_are_drawn_without_replacement(seams: Seams) -> None:
    def make(original: Original, hit: Hit) -> Original:
        def critical_value(*given: Any, **more: Any) -> Any:
            if more.pop("endpoint_variance", 1.0) != 1.0:
                hit()
            return original(*given, **more)

        return critical_value

    seams.replace("privatile.laws.critical:critical_value", make)
