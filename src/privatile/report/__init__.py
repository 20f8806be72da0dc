"""Pages and figures of runs and of Monte Carlo experiments.

`view` reads a run's file, `run_page` and `experiment_page` prepare the values of a page, and the Jinja templates in
`templates/` say how it looks: one file that needs no network. `run_figures` and `experiment_figures` draw for print.
"""

# The pages of experiments and the print figures are not exported here: they need simulation and matplotlib.
from privatile.report.pages import render, render_page
from privatile.report.run_page import RunReporter, run_page, write_run_page
from privatile.run.view import RunView

__all__ = ["RunReporter", "RunView", "render", "render_page", "run_page", "write_run_page"]
