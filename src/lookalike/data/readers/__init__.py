"""Readers of data sets, a module each; `lookalike.data.registry` finds them here."""
