"""Peaks of each step of the optimizer, by the allocator's own statistics.

A step is what happens between two ends of the first optimizer's step(); the first begins with the
process. alive.py says what is alive.
"""

import atexit
import os

from plimsoll_measure import alive, rank, ranks, results

GAUGES = ("allocated", "requested", "reserved")
KEPT = 8  # steps that are reported one by one; of all others, the last


class Meter:
    def __init__(self, torch):
        self.torch = torch
        self.reset_peaks = torch.cuda.memory.reset_peak_memory_stats
        self.process = os.getpid()
        self.step = dict.fromkeys(GAUGES, 0)  # of the step in progress, before the last reset
        self.seen = dict.fromkeys(GAUGES, 0)  # likewise, since the program's own reset
        self.whole = dict.fromkeys(GAUGES, 0)
        self.steps = []
        self.count = 0
        self.optimizer = None
        self.alive = None  # at the highest peak of a step
        self.alive_peak = 0
        self.out_of_memory = None

    def fold(self):
        """Takes what the statistics say since their last reset."""
        stats = self.torch.cuda.memory_stats()
        for gauge in GAUGES:
            peak = stats.get(f"{gauge}_bytes.all.peak", 0)
            for most in (self.step, self.seen, self.whole):
                most[gauge] = max(most[gauge], peak)

    def end_step(self, optimizer, *_):
        if self.optimizer is None:
            self.optimizer = optimizer
        if optimizer is not self.optimizer or not self.torch.cuda.is_initialized():
            return
        self.count += 1
        self.out_of_memory = None  # the program went on
        self.fold()
        if self.step["allocated"] > self.alive_peak:
            self.alive_peak = self.step["allocated"]
            self.alive = alive.at_peak(self.torch, self.count)
        del self.steps[KEPT - 1:]
        self.steps.append(dict(self.step, step=self.count))
        self.step = dict.fromkeys(GAUGES, 0)
        self.reset_peaks()
        alive.record(self.torch)
        if self.count & (self.count - 1) == 0:  # for programs that end without a word
            self.write()

    def ran_out(self, _device, asked, _total, _free):
        self.fold()
        stats = self.torch.cuda.memory_stats()
        self.out_of_memory = {
            "requested_bytes": asked,
            "allocated_bytes": stats["allocated_bytes.all.current"],
            "reserved_bytes": stats["reserved_bytes.all.current"],
            "step": self.count + 1,
        }
        self.alive = alive.now(self.torch, self.count + 1)
        self.write()

    def write(self):
        if os.getpid() != self.process or not self.torch.cuda.is_initialized():
            return
        self.fold()
        if self.whole["reserved"] == 0:
            return  # as a process that compiles
        if self.alive is None:
            self.alive = alive.at_peak(self.torch, 0)
        results.write({
            "torch": self.torch.__version__,
            "rank": rank(),
            "ranks": ranks(),
            "step_count": self.count,
            "steps": self.steps,
            "whole": self.whole,
            "retry_count": self.torch.cuda.memory_stats().get("num_alloc_retries", 0),
            "alive": self.alive,
            "out_of_memory": self.out_of_memory,
        })


def _show_what_the_program_reset(meter):
    """The statistics are reset at each step; the program sees peaks since its own resets."""

    def reset_peak_memory_stats(*args, **kwargs):
        meter.fold()
        meter.seen = dict.fromkeys(GAUGES, 0)
        meter.reset_peaks()

    def peak(gauge):
        def show(*args, **kwargs):
            meter.fold()
            return meter.seen[gauge]

        return show

    shown = {"reset_peak_memory_stats": reset_peak_memory_stats,
             "max_memory_allocated": peak("allocated"), "max_memory_reserved": peak("reserved")}
    cuda, accelerator = meter.torch.cuda, meter.torch.accelerator
    for module in (cuda, cuda.memory, accelerator, getattr(accelerator, "memory", accelerator)):
        for name, function in shown.items():
            if hasattr(module, name):
                setattr(module, name, function)


def watch(torch):
    from torch.optim.optimizer import register_optimizer_step_post_hook

    meter = Meter(torch)
    _show_what_the_program_reset(meter)
    register_optimizer_step_post_hook(meter.end_step)
    atexit.register(meter.write)

    def begin():
        alive.record(torch)
        torch._C._cuda_attach_out_of_memory_observer(meter.ran_out)

    torch.cuda._lazy_call(begin)
