"""Hard negatives for contrastive learning, found in bits: embeddings -> codes -> neighbours -> batches -> training."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lookalike.batches import Batches as Batches
    from lookalike.batches import compose_batches as compose_batches
    from lookalike.codes import CodeTable as CodeTable
    from lookalike.data import DataSource as DataSource
    from lookalike.evaluation import evaluate as evaluate
    from lookalike.hashing import ScalarCodes as ScalarCodes
    from lookalike.hashing import ScalarHasher as ScalarHasher
    from lookalike.hashing import SignHasher as SignHasher
    from lookalike.losses import InfoNCE as InfoNCE
    from lookalike.mining import mine_hard_negatives as mine_hard_negatives
    from lookalike.negatives import Filters as Filters
    from lookalike.negatives import hard_negatives as hard_negatives
    from lookalike.negatives import hardest_positives as hardest_positives
    from lookalike.negatives.same import Marks as Marks
    from lookalike.negatives.same import read_same as read_same
    from lookalike.samplers import LSHBatchSampler as LSHBatchSampler
    from lookalike.samplers import PreEpochBatchSampler as PreEpochBatchSampler
    from lookalike.samplers import RandomBatchSampler as RandomBatchSampler
    from lookalike.samplers import StreamBatches as StreamBatches
    from lookalike.search import Neighbours as Neighbours
    from lookalike.search import hamming_topk as hamming_topk
    from lookalike.search import scalar_topk as scalar_topk
    from lookalike.training.advice import Advice as Advice
    from lookalike.training.advice import advise as advise
    from lookalike.training.comparison import compare as compare
    from lookalike.training.comparison_results import ComparisonResult as ComparisonResult
    from lookalike.training.export import export_model as export_model
    from lookalike.training.models import load_model as load_model
    from lookalike.training.results import EpochMetrics as EpochMetrics
    from lookalike.training.results import RunResult as RunResult
    from lookalike.training.run import train as train
    from lookalike.training.settings import Settings as Settings

__version__ = "0.1.0"

# Imported at first use: torch alone takes a second, which `lookalike --help` should not.
_HOMES = {
    "Advice": "lookalike.training.advice",
    "Batches": "lookalike.batches",
    "CodeTable": "lookalike.codes",
    "ComparisonResult": "lookalike.training.comparison_results",
    "DataSource": "lookalike.data",
    "EpochMetrics": "lookalike.training.results",
    "Filters": "lookalike.negatives",
    "InfoNCE": "lookalike.losses",
    "LSHBatchSampler": "lookalike.samplers",
    "Marks": "lookalike.negatives.same",
    "Neighbours": "lookalike.search",
    "PreEpochBatchSampler": "lookalike.samplers",
    "RandomBatchSampler": "lookalike.samplers",
    "RunResult": "lookalike.training.results",
    "ScalarCodes": "lookalike.hashing",
    "ScalarHasher": "lookalike.hashing",
    "Settings": "lookalike.training.settings",
    "SignHasher": "lookalike.hashing",
    "StreamBatches": "lookalike.samplers",
    "advise": "lookalike.training.advice",
    "compare": "lookalike.training.comparison",
    "compose_batches": "lookalike.batches",
    "evaluate": "lookalike.evaluation",
    "export_model": "lookalike.training.export",
    "hamming_topk": "lookalike.search",
    "hard_negatives": "lookalike.negatives",
    "hardest_positives": "lookalike.negatives",
    "load_model": "lookalike.training.models",
    "mine_hard_negatives": "lookalike.mining",
    "read_same": "lookalike.negatives.same",
    "scalar_topk": "lookalike.search",
    "train": "lookalike.training.run",
}

__all__ = [
    "Advice",
    "Batches",
    "CodeTable",
    "ComparisonResult",
    "DataSource",
    "EpochMetrics",
    "Filters",
    "InfoNCE",
    "LSHBatchSampler",
    "Marks",
    "Neighbours",
    "PreEpochBatchSampler",
    "RandomBatchSampler",
    "RunResult",
    "ScalarCodes",
    "ScalarHasher",
    "Settings",
    "SignHasher",
    "StreamBatches",
    "advise",
    "compare",
    "compose_batches",
    "evaluate",
    "export_model",
    "hamming_topk",
    "hard_negatives",
    "hardest_positives",
    "load_model",
    "mine_hard_negatives",
    "read_same",
    "scalar_topk",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lookalike' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
