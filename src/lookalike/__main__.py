"""Run the command line with `python -m lookalike`."""

from lookalike.cli import main

main()
