"""torchrun, and what launches as it does: one process, whatever number was asked for."""

import os

from plimsoll_measure import results

_PER_NODE = "PLIMSOLL_MEASURE_RANKS_PER_NODE"  # the launcher is another process


def ranks_per_node():
    """As a launcher was told; 0 where none was."""
    return int(os.environ.get(_PER_NODE, "0"))


def launch_one(module, ranks):
    real = module.launch_agent

    def launch_agent(config, *args, **kwargs):
        asked = config.max_nodes * config.nproc_per_node
        if asked > 1:
            os.environ[_PER_NODE] = str(config.nproc_per_node)
        if asked not in (1, ranks):
            results.refuse(f"--gpus: {ranks}; the launcher starts {asked} ranks, so must be {asked}")
        if config.max_nodes > 1:  # as torchrun --standalone
            config.rdzv_backend, config.rdzv_endpoint = "c10d", "localhost:0"
            config.rdzv_configs = {}
        config.min_nodes = config.max_nodes = config.nproc_per_node = 1
        config.max_restarts = 0
        return real(config, *args, **kwargs)

    module.launch_agent = launch_agent
