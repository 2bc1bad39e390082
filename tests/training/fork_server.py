"""Preloaded by the server that `test_run` forks lives from, so that no life has to load and compile everything."""

import torch
import torch._dynamo  # which the first optimizer imports

from lookalike.samplers.warmup import compile_kernels

torch.set_num_threads(1)  # a fork must not inherit the threads of a pool
compile_kernels()
