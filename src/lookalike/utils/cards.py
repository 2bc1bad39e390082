"""Cards for models and data sets: Markdown with the front matter that the Hugging Face Hub reads."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CARD = "README.md"
TAG = "lookalike"  # of every card, which tells our folders from others
LICENSE = "# license: say here under which license you share this, such as apache-2.0\n"
FENCE = "---\n"
CITATION = """@misc{lookalike,
    title = {lookalike: hard negatives for contrastive learning, found in bits},
    note = {Implements Locality-Sensitive Hashing for Efficient Hard Negative Sampling in Contrastive Learning, 2025}
}"""


def front_matter(content: Mapping[str, Any]) -> str:
    """Return YAML between fences, with a line in which to fill in the license.

    Examples:
        >>> print(front_matter({"tags": ["lookalike"]}))
        ---
        tags:
        - lookalike
        # license: say here under which license you share this, such as apache-2.0
        ---
        <BLANKLINE>
    """
    written: str = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True)
    return FENCE + written + LICENSE + FENCE


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
    """Refuse a folder that writing a new one would destroy; with `force`, only one that has a card of lookalike is.

    Args:
        folder: The folder to write.
        what: What is written to it: "an exported model".
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
    if not force:
        raise ValueError(f"{folder} exists; force=True overwrites it, {argument}= chooses another folder.")
    if (folder / ".git").exists() or not _has_card(folder):
        raise ValueError(
            f"{folder} is not {what}, so it is not overwritten: remove it, or choose another folder with {argument}=."
        )


def _has_card(folder: Path) -> bool:
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
        content = yaml.safe_load(text.split(FENCE, 2)[1]) if text.startswith(FENCE) else None
    except (OSError, ValueError, IndexError, yaml.YAMLError):
        return False
    return isinstance(content, dict) and TAG in (content.get("tags") or [])
