"""Which phase of a step the process is in, as autograd and optimizers show it.

forward, until backward begins; backward; between, from there on: gradient_reduction where an
optimizer's step() comes next, forward of another micro-batch where a backward does; optimizer.
"""

FORWARD, BACKWARD, BETWEEN, REDUCTION, OPTIMIZER = (
    "forward", "backward", "between", "gradient_reduction", "optimizer")


class Phases:
    """Peaks of each phase of one step."""

    def __init__(self):
        self.begin_step()

    def begin_step(self):
        self.name = FORWARD
        self.peaks = {}

    def see(self, peaks):
        _raise(self.peaks, self.name, peaks)

    def move(self, name):
        """What was between two phases is known by the second."""
        if self.name == BETWEEN and BETWEEN in self.peaks:
            _raise(self.peaks, REDUCTION if name == OPTIMIZER else FORWARD,
                   self.peaks.pop(BETWEEN))
        self.name = name


def _raise(peaks, name, seen):
    own = peaks.setdefault(name, dict.fromkeys(seen, 0))
    for gauge, peak in seen.items():
        own[gauge] = max(own[gauge], peak)


def raise_all(peaks, others):
    """Each phase's peaks are the higher of both."""
    for name, seen in others.items():
        _raise(peaks, name, seen)


def watch_backward(torch, begin, end):
    """Calls begin() and end() around each backward; one within another is of it."""
    real = torch.autograd.graph._engine_run_backward
    depth = [0]

    def run_backward(*args, **kwargs):
        if depth[0] == 0:
            begin()
        depth[0] += 1
        try:
            return real(*args, **kwargs)
        finally:
            depth[0] -= 1
            if depth[0] == 0:
                end()

    for module in (torch.autograd, torch.autograd.graph):
        module._engine_run_backward = run_backward
