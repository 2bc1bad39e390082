"""Export the model of a finished run: in the format of its library, with a model card, ready for the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, get_args

from lookalike.training.export_formats import Format, choose_format
from lookalike.training.model_card import model_card
from lookalike.training.models import load_model
from lookalike.training.run_folder import RunFolder
from lookalike.utils.cards import CARD, MODEL, check_replaceable
from lookalike.utils.checks import check_choice
from lookalike.utils.files import remove_leftovers, replacing_folder, room_for, writable
from lookalike.utils.hub import check_repository, upload

if TYPE_CHECKING:
    from collections.abc import Callable


def export_model(
    run: str | Path,
    out: str | Path,
    *,
    format: Format = "auto",  # noqa: A002 - the option of the command line
    force: bool = False,
    push_to_hub: str | None = None,
    private: bool = True,
    on_written: Callable[[str], None] | None = None,
) -> Path:
    """Write the trained model of a finished run as its library loads it, with a model card; whole or not at all.

    Args:
        run: Folder of the run.
        out: Folder to write.
        format: "sentence-transformers", "timm", "transformers" or "safetensors" (the weights alone). By default that of
            the library that the encoder comes from; text encoders of transformers become those of
            sentence-transformers, with the pooling that they were trained with.
        force: Overwrite `out`, if it is an exported model.
        push_to_hub: Upload it to this repository of the Hugging Face Hub, such as "me/my-model".
        private: Make a repository that does not exist yet a private one.
        on_written: Called with the name of the format once the folder is written, before it is uploaded.

    Returns:
        The folder, `out`.

    Raises:
        FileNotFoundError: There is no such run.
        ValueError: The run is not finished, its model was made in Python or cannot be written in this format, or `out`
            holds something else.
        ImportError: A library that the format needs is not installed.
        UnwritableError: `out` cannot be written to.
        DiskFullError: There is no room; nothing is left behind.
        OSError: The upload failed; the folder is written.

    Examples:
        >>> import lookalike
        >>> lookalike.export_model("runs/questions", "my-model")  # doctest: +SKIP
        >>> SentenceTransformer("my-model").encode("how do bees sleep?")  # doctest: +SKIP
    """
    check_choice("format", format, get_args(Format))
    folder, target = RunFolder(Path(run).expanduser()), Path(out).expanduser()
    check_replaceable(target, MODEL, "out", force=force)
    if push_to_hub is not None:
        check_repository(push_to_hub)
    model = load_model(folder.path, device="cpu")
    result, chosen = folder.read_result(), choose_format(model, format)
    card = model_card(model, result, chosen, push_to_hub or target.absolute().name)
    with writable(target), room_for(str(target), "make room and export it again"):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target)
        with replacing_folder(target) as temporary:
            chosen.write(model, temporary)
            (temporary / CARD).write_text(card, encoding="utf-8")
    if on_written is not None:
        on_written(chosen.name)
    if push_to_hub is not None:
        upload(target, push_to_hub, private=private)
    return target
