import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """Spare short runs the wait for a busy disk: files need not survive a power failure here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
