"""`python -m privatile` is the command."""

from privatile.cli import main

main()
