"""What users are told once, however often it happens."""

import logging
from functools import cache

logger = logging.getLogger("lookalike")


@cache
def say_once(sentence: str) -> None:
    """Log a warning the first time that it is given."""
    logger.warning(sentence)
