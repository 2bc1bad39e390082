"""Trackers that remember, fail or hang."""

import threading


class Memory:
    """A tracker that keeps rows, even from one process to the next."""

    def __init__(self):
        self.rows, self.runs, self.closed = [], [], 0

    def folder(self, out):
        return out / "memory"

    def start(self, run):
        self.runs.append(run)
        return self.rows[-1].step + 1 if self.rows else 0

    def log(self, row):
        self.rows.append(row)

    def flush(self):
        pass

    def close(self):
        self.closed += 1

    @property
    def steps(self):
        return [row.step for row in self.rows]

    def column(self, name):
        return {row.step: row.values[name] for row in self.rows if name in row.values}


class Failing(Memory):
    """Fails from some row on, as if the disk were full."""

    def __init__(self, rows):
        super().__init__()
        self.left = rows

    def log(self, row):
        if not self.left:
            raise OSError("no space left on device.\nTraceback")
        self.left -= 1
        super().log(row)


class Hanging(Memory):
    """Never answers until it is released."""

    def __init__(self):
        super().__init__()
        self.released = threading.Event()

    def log(self, row):
        self.released.wait()
