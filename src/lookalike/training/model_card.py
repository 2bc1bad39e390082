"""The model card of a trained model: front matter for the Hub, how to use it, results, data, settings, versions."""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from lookalike.training.encoders import model_name
from lookalike.training.encoders.adapters import OPTIONS as LORA
from lookalike.training.encoders.prompts import OPTIONS as PROMPTS
from lookalike.training.export_formats import PLAIN, SENTENCES, Exported, image_size
from lookalike.training.settings import strategy_name
from lookalike.utils.cards import CITATION, MODEL, TAG, front_matter, markdown_table, shareable

if TYPE_CHECKING:
    from torch import nn

    from lookalike.training.results import RunResult

HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
OWNERS = {"timm": "timm", SENTENCES: SENTENCES}  # of models that these libraries know by a name without an owner
NOT_SETTINGS = {"data", "data_root", "data_options", "data_checksum", "model", "model_options"}


def model_card(model: nn.Module, result: RunResult, chosen: Exported, name: str) -> str:
    """Return the text of a model card.

    Args:
        model: The model.
        result: The result of its run.
        chosen: The format that it is written in.
        name: Where users load it from: the folder, or a repository of the Hub.
    """
    config = result.config
    base = base_model(config)
    data = PurePath(str(config.get("data"))).name
    origin = f" from [{base}](https://huggingface.co/{base})" if base else ""
    rank = (config.get("model_options") or {}).get("lora")
    how = "" if rank is None else f" Its adapters, LoRA of rank {rank}, are merged into the weights."
    sampler = strategy_name(str(config.get("sampler")), config.get("code"), config.get("bits"))
    about = (
        f"This model embeds {chosen.takes} in {getattr(model, 'dim', '?')} dimensions, to be compared by cosine. It "
        f"was trained{origin} with contrastive learning on `{data}`; lookalike composed the batches with its sampler "
        f"`{sampler}`.{how}"
    )
    sections = [
        f"# {name.rpartition('/')[2]}",
        about,
        "## Use",
        f"```python\n{_snippet(model, config, chosen, name)}\n```",
        "## Results",
        _results(result),
        "## Training data",
        _data(config, data),
        "## Training settings",
        _settings(model, config, result),
        "## Versions",
        markdown_table(["package", "version"], sorted(result.versions.items())),
        "## Citation",
        f"```bibtex\n{CITATION}\n```",
    ]
    return _front_matter(result, chosen, base, name, data) + "\n" + "\n\n".join(sections) + "\n"


def base_model(config: dict[str, Any]) -> str | None:
    """Return the Hub's name of the model that a run started from, if it has one.

    Examples:
        >>> base_model({"model_options": {"encoder": "sentence-transformers:all-MiniLM-L6-v2"}})
        'sentence-transformers/all-MiniLM-L6-v2'
        >>> base_model({"model_options": {"encoder": "transformers:/home/me/bert"}}) is None
        True
    """
    options = config.get("model_options") or {}
    kind, _, name = str(options.get("encoder", "")).partition(":")
    if (
        not HUB_NAME.fullmatch(name)
        or Path(name).is_dir()
        or options.get("pretrained") is False
        or "weights" in options
    ):
        return None
    return name if "/" in name or kind not in OWNERS else f"{OWNERS[kind]}/{name}"


def _front_matter(result: RunResult, chosen: Exported, base: str | None, name: str, data: str) -> str:
    is_text = chosen.takes == "texts"
    tags = [TAG, "hard-negatives", "contrastive-learning", "feature-extraction"]
    task = "sentence-similarity" if is_text else "image-feature-extraction"
    content: dict[str, Any] = {"tags": [*tags, SENTENCES] if chosen.name == SENTENCES else tags}
    content["library_name"] = TAG if chosen.name == PLAIN else chosen.name
    content["pipeline_tag"] = task
    if base is not None:
        content["base_model"] = base
    metrics = [
        {"type": metric, "value": round(value, 6), "name": metric}
        for metric, value in result.metrics.items()
        if "@" in metric
    ]
    if metrics:
        found = {"task": {"type": task}, "dataset": {"name": data, "type": data}, "metrics": metrics}
        content["model-index"] = [{"name": name.rpartition("/")[2], "results": [found]}]
    return front_matter(content, MODEL)


def _results(result: RunResult) -> str:
    """Return a table of every metric of the result, before and after training."""
    columns = {"before training": result.zero_shot, "after training": result.metrics}
    kept = f"The weights are those after epoch {result.epochs or '?'}, the last one."
    if result.validation:
        columns["after training, on the validation part"] = result.validation
        kept = f"The weights are those after epoch {result.best_epoch}, the best one on the validation part."
    names = dict.fromkeys(metric for values in columns.values() for metric in values or ())
    rows = [[metric, *(_shown((values or {}).get(metric)) for values in columns.values())] for metric in names]
    return f"On the test part of the data. {kept}\n\n" + markdown_table(["metric", *columns], rows)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return (
        f"{value:.4f}"
        if isinstance(value, float) and not value.is_integer()
        else f"{value:,.0f}"
        if value > 1
        else f"{value:.1f}"
    )


def _data(config: dict[str, Any], data: str) -> str:
    options = shareable(config.get("data_options") or {})
    rows = [["data set", data], *options.items()]
    if root := config.get("data_root"):
        rows.insert(1, ["read from", PurePath(str(root)).name])
    if checksum := config.get("data_checksum"):
        rows.append(["checksum", checksum])
    return markdown_table(["", ""], rows)


def _settings(model: nn.Module, config: dict[str, Any], result: RunResult) -> str:
    encoder = dict(config.get("model_options") or {})
    kind, colon, name = str(encoder.pop("encoder", "convnet")).partition(":")
    rows: list[list[Any]] = [["encoder", kind + colon + str(shareable(name))], ["model", model_name(model)]]
    rows += [[f"encoder: {option}", value] for option, value in shareable(encoder).items()]
    rows += [[option, value] for option, value in shareable(config).items() if option not in NOT_SETTINGS]
    if result.seconds is not None:
        rows.append(["seconds of training and mining", f"{result.seconds:,.0f}"])
    return markdown_table(["setting", "value"], rows)


def _snippet(model: nn.Module, config: dict[str, Any], chosen: Exported, name: str) -> str:
    """Return Python that loads the model and embeds something; `name` is a folder beside it, or a repository."""
    options = dict(config.get("model_options") or {})
    size = image_size(model, config) or [3, 224, 224]
    if chosen.name == SENTENCES:
        return (
            "from sentence_transformers import SentenceTransformer\n\n"
            f'model = SentenceTransformer("{name}")\n'
            'queries = model.encode_query(["a query"])\n'
            'documents = model.encode_document(["a document that answers it", "another one"])\n'
            "print(model.similarity(queries, documents))"
        )
    if chosen.name == "timm":
        where = f"hf-hub:{name}" if "/" in name else f"local-dir:{name}"
        return (
            "import timm\nimport torch\n\n"
            f'model = timm.create_model("{where}", pretrained=True, num_classes=0).eval()\n'
            'mean, std = (torch.tensor(model.pretrained_cfg[each]).view(3, 1, 1) for each in ("mean", "std"))\n'
            f"images = torch.rand(2, {', '.join(map(str, size))})  # RGB from 0 to 1, resized as in training\n"
            "embeddings = torch.nn.functional.normalize(model((images - mean) / std))"
        )
    if chosen.name == "transformers":
        made = f'from lookalike.training.encoders import make_encoder\n\nmodel = make_encoder("transformers:{name}"'
        if chosen.takes == "images":
            return (
                f"import torch\n\n{made}).eval()\nembeddings = model.encode(torch.rand(2, {', '.join(map(str, size))}))"
            )
        kept = {each: value for each, value in options.items() if each in PROMPTS or each == "max_length"}
        return (
            f"{made}{_arguments(kept)}).eval()\n"
            'queries = model.encode_query(["a query"])\n'
            'documents = model.encode_document(["a document that answers it", "another one"])\n'
            "print(queries @ documents.T)"
        )
    encoder = options.pop("encoder", "convnet")
    arguments = _arguments({each: value for each, value in options.items() if each not in LORA})
    return (
        "from safetensors.torch import load_file\n\nfrom lookalike.training.encoders import make_encoder\n\n"
        f'model = make_encoder("{encoder}"{arguments}).eval()\n'
        f'model.load_state_dict(load_file("{name}/model.safetensors"))'
    )


def _arguments(options: dict[str, Any]) -> str:
    """Return options as further arguments of a call in Python."""
    return "".join(f", {name}={value!r}" for name, value in options.items())
