"""Cards for models and data sets: Markdown with the front matter that the Hugging Face Hub reads."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CARD = "README.md"
TAG = "lookalike"
MODEL, DATA_SET = "an exported model", "a mined data set"  # what folders with a card are
LICENSE = "# license: say here under which license you share this, such as apache-2.0\n"
FENCE = "---\n"
CITATION = """@misc{lookalike,
    title = {lookalike: hard negatives for contrastive learning, found in bits},
    note = {Implements Locality-Sensitive Hashing for Efficient Hard Negative Sampling in Contrastive Learning, 2025}
}"""


def front_matter(content: Mapping[str, Any], what: str) -> str:
    """Return YAML between fences, with a line in which to fill in the license, and a comment that says what wrote it.

    Examples:
        >>> print(front_matter({"tags": ["lookalike"]}, MODEL))
        ---
        tags:
        - lookalike
        # license: say here under which license you share this, such as apache-2.0
        ---
        <!-- Written by lookalike: an exported model. -->
        <BLANKLINE>
    """
    written: str = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    return FENCE + written + LICENSE + FENCE + _signature(what)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table.

    Examples:
        >>> print(markdown_table(["metric", "value"], [["recall@1", 0.5]]))
        | metric | value |
        | --- | --- |
        | recall@1 | 0.5 |
    """
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def shareable(value: Any) -> Any:
    """Return a value of a configuration without the folders of this machine: of an absolute path, only the name.

    Examples:
        >>> shareable({"root": "/home/me/pairs.jsonl", "size": 224})
        {'root': 'pairs.jsonl', 'size': 224}
    """
    if isinstance(value, dict):
        return {name: shareable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [shareable(each) for each in value]
    if isinstance(value, PurePath) or (isinstance(value, str) and value.startswith(("/", "~"))):
        return Path(value).name
    return value


def check_replaceable(folder: Path, what: str, argument: str, *, force: bool) -> None:
    """Refuse a folder that writing a new one would destroy, unless `force` is given and lookalike wrote the old one.

    Args:
        folder: The folder to write.
        what: What is written to it, `MODEL` or `DATA_SET`; nothing else is replaced.
        argument: The argument that names it.
        force: Whether it may be replaced.

    Raises:
        ValueError: It may not.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose a folder with {argument}=.")
    if not any(folder.iterdir()):
        return
    if (folder / ".git").exists() or not _has_card(folder, what):
        raise ValueError(
            f"{folder} is not {what}, so it is not overwritten: remove it, or choose another folder with {argument}=."
        )
    if not force:
        raise ValueError(f"{folder} exists; force=True overwrites it, {argument}= chooses another folder.")


def _has_card(folder: Path, what: str) -> bool:
    """Return whether the folder's card says that lookalike wrote it; tags would not do, which other cards share."""
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return text.startswith(FENCE) and f"\n{_signature(what)}" in text


def _signature(what: str) -> str:
    return f"<!-- Written by lookalike: {what}. -->\n"
