"""What `plimsoll measure` does within a Python process; see decisions/2026-11-23-measure-on-a-phantom.md.

Nothing of torch is imported before the user's program does. Environment:
  PLIMSOLL_MEASURE_RESULTS  a folder; each process that used CUDA leaves a file there
  PLIMSOLL_MEASURE_STEPS  after how many steps of the optimizer the program is to end; 0: by itself
  PLIMSOLL_MEASURE_RANK, PLIMSOLL_MEASURE_RANKS  which of how many ranks this process is
"""

import os

from plimsoll_measure import imports


def rank():
    return int(os.environ.get("PLIMSOLL_MEASURE_RANK", "0"))


def ranks():
    return int(os.environ.get("PLIMSOLL_MEASURE_RANKS", "1"))


def install():
    if os.environ.get("LOCAL_RANK", "0") != "0":
        os._exit(0)  # a launcher's other rank: one is enough
    if ranks() > 1:
        _become_one_of_many()
        imports.after("torch.distributed.distributed_c10d", _pretend_ranks)
    imports.after("torch", _watch)
    imports.after("torch.distributed.launcher.api", _launch_one)


def _become_one_of_many():
    os.environ.update(RANK=str(rank()), WORLD_SIZE=str(ranks()), LOCAL_RANK="0")
    os.environ.setdefault("LOCAL_WORLD_SIZE", "1")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")


def _pretend_ranks(module):
    from plimsoll_measure import processes

    processes.pretend(module, rank(), ranks())


def _watch(torch):
    from plimsoll_measure import refusals, steps, values

    refusals.check(torch)
    values.assume(torch)
    steps.watch(torch)


def _launch_one(module):
    from plimsoll_measure import launchers

    launchers.launch_one(module, ranks())
