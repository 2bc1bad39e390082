"""Errors that several rooms raise; imports no torch, so that `--help` stays fast."""


class RankFailedError(RuntimeError):
    """Another process of `torch.distributed` failed in what all of them do together; its own traceback says more."""
