"""Training with mined batches until a step at which the process is killed, as by the machine: no goodbye."""

import os
import signal

import torch
from transformers import TrainerCallback

from lookalike.integrations.sentence_transformers import HardNegatives
from tests.integrations.texts import losses, make_trainer, pairs

OPTIONS = {"gradient_accumulation_steps": 2, "dataloader_num_workers": 2, "save_strategy": "steps", "save_steps": 4}


class KillAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def build(model_folder, folder):
    torch.set_num_threads(1)
    trainer = make_trainer(model_folder, folder, pairs(), losses.MultipleNegativesRankingLoss, **OPTIONS)
    return trainer, HardNegatives(bits=64).attach(trainer)


def train_until(step, model_folder, folder):
    killed, _ = build(model_folder, folder)
    killed.add_callback(KillAt(step))
    killed.train()
