"""The live page of a run, or of several, served by a process of its own that reads the runs' files and nothing else.

`live` reads the file, `app` is the web application, and `serving` starts and ends its process.
"""

# `app` is not exported here: it needs Starlette, which is an extra.
from privatile.report.dashboard.live import LiveRun
from privatile.report.dashboard.serving import DashboardAddress, DashboardProcess, run_dashboard, show_runs

__all__ = ["DashboardAddress", "DashboardProcess", "LiveRun", "run_dashboard", "show_runs"]
