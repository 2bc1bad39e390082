"""Readers of data sets, one module each; `lookalike.data.registry` finds them here."""
