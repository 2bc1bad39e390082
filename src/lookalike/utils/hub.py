"""Upload a folder to the Hugging Face Hub."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from lookalike.utils.imports import optional_import
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from pathlib import Path


def check_repository(name: str) -> None:
    """Check the name of a repository without asking the Hub.

    Raises:
        ValueError: The Hub has no such names.
        MissingLibraryError: huggingface_hub is not installed.
    """
    utils = optional_import("huggingface_hub.utils", "push_to_hub=", "huggingface_hub")
    try:
        utils.validate_repo_id(name)
    except ValueError as error:
        raise ValueError(f"push_to_hub= must be a repository such as me/my-model, got {name!r} ({error})") from None


def upload(folder: Path, repository: str, *, private: bool = True) -> str:
    """Upload a model to its repository, which is created if there is none, and return its address.

    Args:
        folder: The exported model, with its card.
        repository: Its name, such as "me/my-model".
        private: Whether a repository that is created here is private.

    Raises:
        OSError: It cannot be uploaded; says how to do so later.
    """
    hub: Any = optional_import("huggingface_hub", "push_to_hub=")
    try:
        api = hub.HfApi()
        address = api.create_repo(repository, private=private, exist_ok=True)
        api.upload_folder(
            folder_path=str(folder), repo_id=repository, commit_message="Upload a model trained with lookalike"
        )
    except Exception as error:
        later = f"hf upload {repository} {shlex.quote(str(folder))}{' --private' if private else ''}"
        raise OSError(
            f"{folder} is written but cannot be uploaded to {repository} ({first_line(error)}): log in with hf auth "
            f"login, then {later}"
        ) from error
    return str(address)
