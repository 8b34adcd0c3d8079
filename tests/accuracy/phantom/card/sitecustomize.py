"""Loaded by every Python of card.py: the steps' peaks of a program on a real GPU.

As `plimsoll measure` reads them, of the same hook. Ranks that are not there are torch's own `fake`
backend: what torch allocates for collectives is real, nothing is sent, NCCL's own memory is missing.
CARD_RANKS: how many. CARD_TOKENS: where it is there, zeros of integers that the program itself
makes, its tokens, are of a thousand kinds: a table's rows that are read at once are slow otherwise,
and products of equal rows fast. Beside the peaks: what the device holds, and when each step ended.
"""

import os
import pathlib
import sys
import time

from plimsoll_measure import imports, processes

RANKS = int(os.environ["CARD_RANKS"])


def _pretend_ranks(module):
    real = module.init_process_group

    def init_process_group(*args, **kwargs):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        real("fake", store=FakeStore(), rank=0, world_size=RANKS)

    module.init_process_group = init_process_group
    module._store_based_barrier = lambda *args, **kwargs: None
    processes._pretend_objects(module)


def _differing_tokens(torch):
    from torch.utils import _device

    _device._device_constructors()  # the table of `with torch.device`, which has the real one
    real = torch.zeros
    programs = str(pathlib.Path(__file__).resolve().parents[1])

    def zeros(*size, dtype=None, **kwargs):
        caller = sys._getframe(1).f_code.co_filename
        if dtype == torch.long and os.path.dirname(os.path.abspath(caller)) == programs:
            return torch.randint(1000, size[0] if isinstance(size[0], tuple) else size, **kwargs)
        return real(*size, dtype=dtype, **kwargs)

    torch.zeros = zeros


def _watch(torch):
    from plimsoll_measure import alive, profile, results, steps, values

    if "PLIMSOLL_PHANTOM_NAME" in os.environ:  # of the phantom after all, to compare
        values.assume(torch)

    if "CARD_TOKENS" in os.environ:
        _differing_tokens(torch)
        alive.record = alive.at_peak = lambda *_: None  # stacks of each allocation take time
    profile.communicators = lambda groups: []  # the phantom's NCCL counts them
    ends, used = [], []
    write = results.write

    def note(*_):
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        ends.append(time.perf_counter())
        used.append(total - free)

    results.write = lambda values: write({**values, "ends": ends, "used": used,
                                          "gpu": torch.cuda.get_device_name()})
    steps.watch(torch)
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(note)


if RANKS > 1:
    os.environ.update(RANK="0", WORLD_SIZE=str(RANKS), LOCAL_RANK="0", LOCAL_WORLD_SIZE="1",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    imports.after("torch.distributed.distributed_c10d", _pretend_ranks)
imports.after("torch", _watch)
