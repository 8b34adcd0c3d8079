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


class _Engine:
    """torch's own, which some programs ask without torch.autograd, as Megatron's pipelines do."""

    def __init__(self, engine, begin, end):
        self.engine, self.begin, self.end = engine, begin, end
        self.depth = 0

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def run_backward(self, *args, **kwargs):
        if self.depth == 0:
            self.begin()
        self.depth += 1
        try:
            return self.engine.run_backward(*args, **kwargs)
        finally:
            self.depth -= 1
            if self.depth == 0:
                self.end()


def watch_backward(torch, begin, end):
    """Calls begin() and end() around each backward; one within another is of it."""
    variable = torch.autograd.Variable
    variable._execution_engine = _Engine(variable._execution_engine, begin, end)
