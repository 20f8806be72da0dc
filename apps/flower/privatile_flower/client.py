"""A site's side. Node config: `client`, `study`, `source`, `value`, `ledger`, `max-epsilon`."""

from privatile_flower.study import study_client_app

app = study_client_app()
