"""Prompts: what precedes the texts of each tower, given as text or by the name of one of the model's own prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lookalike.utils.messages import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = ("query_prompt", "query_prompt_name", "document_prompt", "document_prompt_name")
USUAL = {  # by tower: the names that sentence-transformers' encode_query and encode_document look for, in this order
    "query": ("query",),
    "reference": ("document", "passage", "corpus"),
}


def check_prompts(options: Mapping[str, Any]) -> None:
    """Check the prompts among the options of an encoder, without the model.

    Raises:
        TypeError: One of them is not a text.
        ValueError: A tower has both a prompt and the name of one.
    """
    given = {name: options[name] for name in OPTIONS if options.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a text, got {value!r}.")
    for side in ("query", "document"):
        if f"{side}_prompt" in given and f"{side}_prompt_name" in given:
            raise ValueError(f"{side}_prompt is a text and {side}_prompt_name the name of one: give one of them.")


def tower_prompts(own: Mapping[str, str], model: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the prompt of each tower, "query" and "reference": what the options say, or else the model's usual ones.

    A tower is left out if neither says anything; its prompt is empty if the options say so.

    Args:
        own: The model's prompts by name.
        model: What errors call the model.
        options: Those of the encoder.

    Raises:
        TypeError: A prompt is not a text.
        ValueError: The model has no prompt of that name, or a tower has both a prompt and the name of one.
    """
    check_prompts(options)
    found = {}
    for tower, side in (("query", "query"), ("reference", "document")):
        prompt, name = options.get(f"{side}_prompt"), options.get(f"{side}_prompt_name")
        if prompt is None and name is None:
            name = next((usual for usual in USUAL[tower] if own.get(usual)), None)  # empty ones are the library's own
        if name is not None and name not in own:
            known = f"its prompts are {', '.join(own)}{suggestion(name, own)}" if own else "it has none."
            raise ValueError(f"{model} has no prompt {name!r}, which {side}_prompt_name= names; {known}")
        text = prompt if name is None else own[name]
        if text is not None:
            found[tower] = text
    return found


def by_their_names(prompts: Mapping[str, str]) -> dict[str, str]:
    """Return the prompts of towers under the names that sentence-transformers looks for first.

    Examples:
        >>> by_their_names({"query": "q: ", "reference": "d: "})
        {'query': 'q: ', 'document': 'd: '}
    """
    return {USUAL[tower][0]: text for tower, text in prompts.items()}
