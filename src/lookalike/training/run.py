"""Train one model on one data set, given by name or as objects, and keep the run in a folder.

    from lookalike import Settings, train

    result = train("glyphs", Settings(sampler="lsh", bits=512, epochs=10), out="runs/first")

The loop itself is in `lookalike.training.loop`.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lookalike.data import DataSource
from lookalike.data.fingerprints import checksum
from lookalike.data.retrieval import RetrievalData
from lookalike.data.same import num_samples, with_same
from lookalike.negatives.same import read_same
from lookalike.training.checkpoints import NEWEST
from lookalike.training.encoders import check_encoder, make_encoder, model_name
from lookalike.training.errors import DivergenceError, Interrupted, UnreadableSampleError
from lookalike.training.interruptions import stop_requests
from lookalike.training.loop import TrainingLoop
from lookalike.training.recipes import recipe
from lookalike.training.results import RunResult
from lookalike.training.run_folder import BEGIN_AGAIN, CONFIG, MAY_CHANGE, RunFolder
from lookalike.training.settings import Settings
from lookalike.training.team import Team
from lookalike.training.team.devices import own_device
from lookalike.training.team.folder import TeamFolder
from lookalike.training.trackers import tracker_names
from lookalike.training.trackers.reporter import Reporter
from lookalike.utils.errors import RankFailedError
from lookalike.utils.lengthless import refuse_stream
from lookalike.utils.machine import checked_device, has_settled, machine, versions
from lookalike.utils.messages import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lookalike.training.results import EpochMetrics

ECHO = 5.0  # seconds in which a launcher repeats the signal that its processes have received already
Data = str | DataSource | RetrievalData
Model = str | dict[str, Any] | nn.Module


def train(
    data: Data,
    settings: Settings | None = None,
    *,
    out: str | Path,
    model: Model | None = None,
    same: Any = None,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    keep_checkpoint: bool = False,
    report_to: str | Sequence[str] | None = None,
    on_epoch: Callable[[EpochMetrics], None] | None = None,
    progress: bool = True,
) -> RunResult:
    """Train a model and return the result, which the run's folder keeps as well.

    Args:
        data: Name of a data set, a `DataSource` (name, folder and reader options), or loaded data.
        settings: How to train; the data set's recipe by default.
        out: Folder of the run, held by one process at a time; `lookalike.training.run_folder` lists its files.
        model: Name of an encoder, a dictionary of `make_encoder` arguments, or any module that turns what the data set
            returns into embeddings `[n, dim]`; the data set's recipe by default.
        same: Pairs of samples of the training part that a person marked as the same: a file, as `read_same` reads it,
            or ids `[m, 2]`. The two count as one label, so they never meet as negatives.
        device: Device of torch; by default a GPU if there is one.
        resume: Continue the run in `out`, if there is one; a finished run returns its result.
        force: Overwrite the run in `out`.
        keep_checkpoint: Keep the checkpoints of the finished run.
        report_to: Trackers to log to: "tensorboard", "wandb", "trackio" or several of them, by default none. It may
            differ when a run resumes.
        on_epoch: Called after every epoch; first with epoch 0, the model before training.
        progress: Draw progress bars if stderr is a terminal.

    Raises:
        ValueError: `out` holds another run, or an argument is impossible.
        MissingLibraryError: The library of a tracker is not installed.
        FolderInUseError: Another process trains in `out`.
        DiskFullError: There is no room for a checkpoint or the model; the last complete checkpoint is kept.
        UnwritableError: `out` cannot be written to.
        UnreadableSampleError: A sample cannot be read; everything is saved.
        DivergenceError: The loss became infinite or NaN; the last good checkpoint is kept.
        LostRankError: One of the processes that train together is gone; what rank 0 could save is kept.
        RankFailedError: One of them failed, and says why itself.
        Interrupted: Ctrl-C or SIGTERM; everything is saved.

    Examples:
        >>> from lookalike import Settings, train
        >>> result = train("glyphs", Settings(epochs=10, pairs_per_batch=32), out="runs/mine")  # doctest: +SKIP
        >>> result.metrics["recall@1"], result.mining_share  # doctest: +SKIP
    """
    plan = Plan.of(data, settings, model, same)
    plan.check(resume=resume, force=force)
    trackers = tracker_names(report_to) if report_to else ()
    device = checked_device(device)
    team = Team.join(torch.device(device).type)
    with team.guarded():
        device, folder = own_device(device, team), TeamFolder(RunFolder(Path(out)), team)
        resume, force = folder.after_restart(resume=resume, force=force)
        known, progress = plan.config(), progress and team.is_first
        result = None
        if resume:
            whole = partial(_whole_config, plan, progress=progress)
            result = folder.finished_result(whole, known, keep_checkpoint=keep_checkpoint)
        if result is not None:
            return result
        folder.check_trackers(trackers)
        with folder.held(known, resume=resume, force=force):
            if resume and (result := folder.just_finished()) is not None:
                return result
            loaded = team.together(lambda: plan.load_data(progress=progress))
            plan = team.together(lambda: plan.with_pairs_of(loaded))  # once: the file may grow meanwhile
            encoder = team.together(plan.build_model)
            config = plan.config(loaded, encoder)
            team.agree(_comparable(config, loaded), "start all of them with the same arguments, on the same data")
            loaded = loaded if plan.same is None else with_same(loaded, plan.same)
            loop = TrainingLoop(encoder, loaded, plan.settings, torch.device(device), team=team, progress=progress)
            loop.prepare()  # before anything is written
            state = folder.begin(config, resume=resume, force=force)
            if state is not None:
                team.together(partial(_load, loop, state, folder))
            else:
                folder.save(loop)  # so that a run killed in its first epoch begins with the same weights
            try:
                loop.report = team.together(
                    lambda: Reporter.begin(trackers if team.is_first else (), folder.path, config, loop)
                )
                _run(loop, folder, on_epoch if on_epoch is not None and team.is_first else lambda _: None)
            finally:
                loop.report.close()
                loop.backward.release()
            result = RunResult.of_epochs(
                loop.history,
                config=config,
                parameters=sum(p.numel() for p in encoder.parameters()),
                machine=machine(device) | ({"ranks": team.world_size} if team.world_size > 1 else {}),
                versions=versions(),
            )
            folder.finish(result, encoder, keep_checkpoint=keep_checkpoint)
    return result


def _run(loop: TrainingLoop, folder: TeamFolder, on_epoch: Callable[[EpochMetrics], None]) -> None:
    """Train to the end, or save what there is when the run must stop."""
    with stop_requests(echo=0.0 if loop.team.world_size == 1 else ECHO) as request:
        loop.check = request.check
        try:
            loop.run(lambda: folder.save(loop), on_epoch)
        except Interrupted:
            folder.save(loop)  # all wait for it: a launcher kills those that are left soon after one has ended
            raise
        except (UnreadableSampleError, RankFailedError):
            if not loop.is_composing and has_settled(loop.device):
                folder.save_alone(loop)
            raise
        except RuntimeError as error:  # a collective raises one if a rank is gone
            lost = loop.team.explained(error)
            if lost is None:
                raise
            if loop.is_between_steps and has_settled(loop.device):
                folder.save_alone(loop)
            if lost is error:  # found out before a vote
                raise
            raise lost from error
        except DivergenceError as error:
            raise DivergenceError(f"{error} {folder.path} keeps the state after epoch {loop.epoch}.") from None


def _whole_config(plan: Plan, *, progress: bool) -> dict[str, Any]:
    return plan.config(plan.load_data(progress=progress))


def _comparable(config: dict[str, Any], data: RetrievalData) -> dict[str, str]:
    """Return what must be the same on every rank; where files lie may differ from machine to machine."""
    labels = data.train.labels
    notes = {name: str(value) for name, value in config.items() if name not in ("data_root", "same_file")}
    notes["labels (checksum)"] = "none" if labels is None else f"{zlib.crc32(labels.cpu().numpy().tobytes()):08x}"
    notes["version of lookalike"] = versions().get("lookalike", "unknown")
    return notes


def check_run(
    plan: Plan,
    out: str | Path,
    *,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    report_to: str | Sequence[str] | None = None,
) -> None:
    """Raise what `train` raises before it loads data or a model.

    Args:
        plan: What to train: `Plan.of` with the first arguments of `train`.
        out: As in `train`, and so are the others.
        device: Device of torch.
        resume: Continue the run in `out`.
        force: Overwrite the run in `out`.
        report_to: Trackers to log to.

    Raises:
        ValueError: An argument is impossible, or `out` holds another run.
        MissingLibraryError: The library of a tracker is not installed.
        FolderInUseError: Another process trains in `out`.
        UnwritableError: `out` cannot be written to.
    """
    plan.check(resume=resume, force=force)
    team = Team.join(torch.device(checked_device(device)).type)
    folder = TeamFolder(RunFolder(Path(out)), team)
    folder.check(plan.config(), resume=resume, force=force)
    folder.check_trackers(tracker_names(report_to) if report_to else ())


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run trains, by name or as objects, before anything is loaded."""

    data: DataSource | RetrievalData
    settings: Settings
    model: nn.Module | None = None
    model_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of `make_encoder`; empty for a module."""
    same: Any = None
    """Pairs of samples that are the same, as `read_same` takes them."""
    same_file: str | None = None
    """The file they come from."""

    @classmethod
    def of(cls, data: Data, settings: Settings | None, model: Model | None, same: Any = None) -> Plan:
        """Look up what the arguments of `train` leave to the data set's recipe.

        Raises:
            ValueError: There is no such data set, or no recipe to take a model from.
            TypeError: `data` is a stream, or something else that is no data set.
        """
        refuse_stream("data", data, "training needs samples by number")
        if not isinstance(data, str | DataSource | RetrievalData):
            raise TypeError(
                f"data must be the name of a data set, a DataSource or a RetrievalData, got {type(data).__name__}; "
                "lookalike.data.build makes one of texts or image files, lookalike.data.huggingface of a Dataset."
            )
        data = DataSource(data) if isinstance(data, str) else data
        source = data.source if isinstance(data, RetrievalData) else data
        usual = None if source is None else recipe(source.name)
        if usual is not None and isinstance(data, DataSource):
            data = replace(data, options={**usual.data, **data.options})
        if settings is None:
            settings = Settings() if usual is None else usual.settings
        is_file = isinstance(same, str | os.PathLike)
        marks = {"same": same, "same_file": str(Path(same).expanduser().resolve()) if is_file else None}
        if isinstance(model, nn.Module):
            return cls(data=data, settings=settings, model=model, **marks)
        if model is None:
            if usual is None:
                raise ValueError(f"{data.name} has no recipe to take a model from: say what to train with model=.")
            model = usual.model
        options = {"encoder": model} if isinstance(model, str) else model
        return cls(data=data, settings=settings, model_options=options, **marks)

    @classmethod
    def recorded(cls, out: str | Path, config: dict[str, Any] | None = None) -> Plan:
        """Read what the run in a folder was started with.

        Args:
            out: The folder.
            config: Its configuration, if it was read already.

        Raises:
            FileNotFoundError: The folder holds no run.
            ValueError: Its configuration is damaged, or its data were made in Python and cannot be loaded by name.
        """
        folder = RunFolder(Path(out))
        config = folder.read_begun() if config is None else config
        if "data_options" not in config:
            raise ValueError(f"{out} holds a run on data made in Python: continue it from there, with resume=True.")
        try:
            names = [each.name for each in fields(Settings) if each.name in config or each.name not in MAY_CHANGE]
            settings = Settings.from_dict({name: config[name] for name in names})
        except KeyError as error:
            raise ValueError(
                f"{folder.config} is damaged, or of another version of lookalike ({error.args[0]} is missing). "
                f"{BEGIN_AGAIN}"
            ) from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder.config} is damaged ({str(error).rstrip('.')}). {BEGIN_AGAIN}") from None
        file = config.get("same_file")
        data = DataSource.of_run(config)
        return cls(data=data, settings=settings, model_options=config["model_options"], same=file, same_file=file)

    @property
    def source(self) -> DataSource | None:
        """Where the data come from; None for data made in Python."""
        return self.data.source if isinstance(self.data, RetrievalData) else self.data

    def check(self, *, resume: bool, force: bool) -> None:
        """Check the arguments of `train` without loading anything.

        Raises:
            ValueError: One of them is impossible.
        """
        if resume and force:
            raise ValueError("resume=True continues a run and force=True overwrites it: set one of them.")
        if self.model is None:
            check_encoder(**self.model_options)
        if isinstance(self.data, DataSource):
            self.data.check()
        if self.same_file is not None and not Path(self.same_file).is_file():
            raise FileNotFoundError(f"{self.same_file}: there is no such file of pairs that are the same.")

    def config(self, data: RetrievalData | None = None, model: nn.Module | None = None) -> dict[str, Any]:
        """Return the configuration that the run's folder keeps, as far as it is known without loading the rest."""
        config = asdict(self.settings) | {"model_options": self.model_options}
        config |= {"data": self.data.name} if self.source is None else self.source.as_config()
        config |= {} if self.same_file is None else {"same_file": self.same_file}
        if data is None and isinstance(self.data, RetrievalData):
            data = self.data
        if data is not None:
            config["data_checksum"] = data.checksum
            same = self.with_pairs_of(data).same
            config["same"] = None if same is None else {"pairs": len(same), "checksum": checksum(same)}
        model = self.model if model is None else model
        if model is not None:
            config["model"] = model_name(model)
        return config

    def load_data(self, *, progress: bool) -> RetrievalData:
        """Load the data, unless they are loaded already."""
        return self.data if isinstance(self.data, RetrievalData) else self.data.load(progress=progress)

    def with_pairs_of(self, data: RetrievalData) -> Plan:
        """Return the plan with the ids of the pairs that are the same, None if there are none.

        Raises:
            ValueError: They are not pairs of samples of the training part, or their file is damaged or of other data.
        """
        if self.same is None:
            return self
        same = read_same(self.same, num_samples(data.train), data.checksum)
        return replace(self, same=same if len(same) else None)

    def build_model(self) -> nn.Module:
        """Seed torch, which decides weights and dropout, and build the encoder, unless the model is a module."""
        torch.manual_seed(self.settings.seed)
        return make_encoder(**self.model_options) if self.model is None else self.model


def _load(loop: TrainingLoop, state: dict[str, Any], folder: TeamFolder) -> None:
    """Continue from a checkpoint.

    Raises:
        ValueError: The checkpoint belongs to another run.
    """
    try:
        loop.load_state_dict(state)
    except (KeyError, RuntimeError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{folder.path / NEWEST} does not fit the run in {folder.path / CONFIG} ({first_line(error)}): put the "
            "right one back, or begin the run again with force=True."
        ) from error
