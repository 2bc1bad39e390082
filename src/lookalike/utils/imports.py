"""Import libraries that come with an extra, and name the command that installs them."""

import importlib
from typing import Any


def optional_import(module: str, needed_for: str, package: str | None = None) -> Any:
    """Import a module that is not a core dependency.

    Args:
        module: Its dotted name.
        needed_for: What needs it, for the error.
        package: What to install, where that is not the first part of `module`: "scipy", "'lookalike[text]'".

    Raises:
        ImportError: It is not installed; names the pip command.
    """
    name = module.partition(".")[0]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if error.name not in (name, module):  # the module is installed; one of its own dependencies is not
            raise
        raise ImportError(f"{needed_for} needs {name}: pip install {package or name}.") from None
