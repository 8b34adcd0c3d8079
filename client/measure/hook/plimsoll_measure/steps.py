"""Peaks of each step of the optimizer, by the allocator's own statistics.

A step is what happens between two ends of the first optimizer's step(); the first begins with the
process. Of several without a backward between them, as DeepSpeed calls it for each group of
parameters, the later ones are of the same step. alive.py says what is alive, phases.py which part of a step it is.
"""

import atexit
import os
import sys

from plimsoll_measure import alive, launchers, phases, profile, rank, ranks, results

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
        self.saw_backward = False  # since the last step ended
        self.ever_saw_backward = False
        self.alive = None  # at the highest peak of a step
        self.alive_peak = 0
        self.out_of_memory = None
        self.most_steps = int(os.environ.get("PLIMSOLL_MEASURE_STEPS") or 0)  # 0: as the program has it
        self.phases = phases.Phases()
        self.first = None  # peaks of each phase of the first step
        self.steady = {}  # of any later one
        self.parameters = None
        self.groups = []  # of ranks; a program may destroy them before it ends
        self.activation_bytes = None  # of the first micro-batch of the second step

    def fold(self):
        """Takes what the statistics say since their last reset."""
        stats = self.torch.cuda.memory_stats()
        peaks = {gauge: stats.get(f"{gauge}_bytes.all.peak", 0) for gauge in GAUGES}
        for gauge, peak in peaks.items():
            for most in (self.step, self.seen, self.whole):
                most[gauge] = max(most[gauge], peak)
        self.phases.see(peaks)

    def move(self, phase):
        if not self.torch.cuda.is_initialized():
            return
        self.fold()
        self.reset_peaks()
        self.phases.move(phase)

    def begin_backward(self):
        self.saw_backward = self.ever_saw_backward = True
        self.move(phases.BACKWARD)
        if self.count == 1 and self.activation_bytes is None:
            now = self.torch.cuda.memory_stats()["allocated_bytes.all.current"]
            known = self.parameters
            self.activation_bytes = max(0, now - known.weight_bytes - known.optimizer_state_bytes
                                        - known.gradient_bytes())

    def end_backward(self):
        self.move(phases.BETWEEN)

    def begin_optimizer(self, *_):
        self.move(phases.OPTIMIZER)

    def end_phases(self):
        """Of the step that ends now."""
        self.groups = profile.groups(self.torch) or self.groups
        if self.count == 1:
            self.first = self.phases.peaks
            self.parameters = profile.Parameters(self.torch, self.optimizer)
        else:
            phases.raise_all(self.steady, self.phases.peaks)
        self.phases.begin_step()

    def end_step(self, optimizer, *_):
        if self.optimizer is None:
            self.optimizer = optimizer
        if not self.torch.cuda.is_initialized():
            return
        if optimizer is not self.optimizer:
            return self.move(phases.FORWARD)
        self.fold()
        if self.ever_saw_backward and not self.saw_backward:
            return self.end_step_further()
        self.saw_backward = False
        self.count += 1
        self.out_of_memory = None  # the program went on
        if self.step["allocated"] > self.alive_peak:
            self.alive_peak = self.step["allocated"]
            self.alive = alive.at_peak(self.torch, self.count)
        del self.steps[KEPT - 1:]
        self.steps.append(dict(self.step, step=self.count))
        self.step = dict.fromkeys(GAUGES, 0)
        self.end_phases()
        self.reset_peaks()
        alive.record(self.torch)
        if self.count & (self.count - 1) == 0:  # for programs that end without a word
            self.write()
        if 0 < self.most_steps <= self.count:
            self.write()
            sys.exit(0)  # as the program itself might: what it would clean up, it does

    def end_step_further(self):
        """Of the step that had ended: it goes on for other parameters."""
        last = self.steps[-1]
        last.update({gauge: max(last[gauge], self.step[gauge]) for gauge in GAUGES})
        phases.raise_all(self.first if self.count == 1 else self.steady, self.phases.peaks)
        if self.count == 1:
            trained = self.parameters.trained
            self.parameters = profile.Parameters(self.torch, self.optimizer, trained)
        self.step = dict.fromkeys(GAUGES, 0)
        self.phases.begin_step()
        self.reset_peaks()

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
            **({} if self.first is None else {"profile": self.profile()}),
        })

    def profile(self):
        """What a job can be made of, once a step has ended."""
        return {
            "framework": profile.framework(self.torch),
            "communicators": profile.communicators(self.groups),
            "ranks_per_node": launchers.ranks_per_node(),
            "parameter_counts": self.parameters.counts,
            "shard_parameter_counts": self.parameters.shard_counts,
            "weight_bytes": self.parameters.weight_bytes,
            "optimizer_state_bytes": self.parameters.optimizer_state_bytes,
            "activation_bytes": self.activation_bytes or 0,
            "first_step": self.first,
            "steady_step": self.steady,
        }


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
    from torch.optim.optimizer import (register_optimizer_step_post_hook,
                                       register_optimizer_step_pre_hook)

    meter = Meter(torch)
    _show_what_the_program_reset(meter)
    register_optimizer_step_pre_hook(meter.begin_optimizer)
    register_optimizer_step_post_hook(meter.end_step)
    phases.watch_backward(torch, meter.begin_backward, meter.end_backward)
    atexit.register(meter.write)

    def begin():
        alive.record(torch)
        torch._C._cuda_attach_out_of_memory_observer(meter.ran_out)

    torch.cuda._lazy_call(begin)
