"""The coordinator's side. Run config: `study` (a study file) and `store` (the run's file)."""

from privatile_flower.study import study_server_app

app = study_server_app()
