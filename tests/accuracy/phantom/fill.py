#!/usr/bin/env python3
"""Runs the rows that deal.py deals by `plimsoll measure`, and adds what they held to a CSV file.

    fill.py OUT.csv [ID...]     those that OUT.csv has not yet; deal_tuning.py's where it is named
                                phantom_tuning.csv, deal_adapters.py's for phantom_adapters.csv,
                                deal_automodel.py's for phantom_automodel.csv,
                                deal_context.py's for phantom_context.csv,
                                deal_distillation.py's for phantom_distillation.csv,
                                deal_experts.py's for phantom_experts.csv,
                                deal_frozen.py's for phantom_frozen.csv,
                                deal_half.py's for phantom_half.csv,
                                deal_liger.py's for phantom_liger.csv,
                                deal_linear.py's for phantom_linear.csv,
                                deal_mamba.py's for phantom_mamba.csv,
                                deal_megatron.py's for phantom_megatron.csv,
                                deal_megatron_fsdp.py's for phantom_megatron_fsdp.csv,
                                deal_optimizers.py's for phantom_stepped.csv,
                                deal_state_space.py's for phantom_state_space.csv,
                                deal_titan.py's for phantom_titan.csv,
                                deal_tune.py's for phantom_tune.csv,
                                deal_tuners.py's for phantom_tuners.csv

A row that a H100 has not enough memory for, or whose command fails, is said and left out.
PLIMSOLL: the command line; build/client/plimsoll where it is not set. DEEPSPEED_018_PACKAGES: a
folder with DeepSpeed 0.18.9; LOW_RANK_PACKAGES: one with galore-torch and apollo-torch.
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import deal
import deal_adapters
import deal_automodel
import deal_context
import deal_distillation
import deal_experts
import deal_frozen
import deal_half
import deal_liger
import deal_linear
import deal_mamba
import deal_megatron
import deal_megatron_fsdp
import deal_optimizers
import deal_state_space
import deal_titan
import deal_tune
import deal_tuners
import deal_tuning

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PLIMSOLL = os.environ.get("PLIMSOLL", str(ROOT / "build" / "client" / "plimsoll"))
CONFIGS = HERE.parent / "data" / "phantom"
DEALERS = {"phantom_tuning.csv": deal_tuning, "phantom_adapters.csv": deal_adapters,
           "phantom_automodel.csv": deal_automodel, "phantom_context.csv": deal_context,
           "phantom_distillation.csv": deal_distillation,
           "phantom_experts.csv": deal_experts, "phantom_frozen.csv": deal_frozen,
           "phantom_half.csv": deal_half,
           "phantom_liger.csv": deal_liger,
           "phantom_linear.csv": deal_linear,
           "phantom_mamba.csv": deal_mamba,
           "phantom_megatron.csv": deal_megatron,
           "phantom_megatron_fsdp.csv": deal_megatron_fsdp,
           "phantom_state_space.csv": deal_state_space,
           "phantom_stepped.csv": deal_optimizers,
           "phantom_titan.csv": deal_titan, "phantom_tune.csv": deal_tune,
           "phantom_tuners.csv": deal_tuners}
TRAINERS = {"": "train.py", "hf-trainer": "train_hf.py", "trl": "train_trl.py",
            "torchtitan": "train_titan.py", "torchtune": "train_tune.py",
            "megatron": "train_megatron.py",
            "nemo-automodel": "train_automodel.py"}


def measure(row):
    """What the last of its steps held; why it is not known, where it is not."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({name: str(value) for name, value in row.items()}, file)
        file.flush()
        trainer = row["trainer"].partition(" ")[0]
        gpu = "a100-80gb-sxm" if trainer == "torchtitan" else "h100-80gb-sxm"
        command = [PLIMSOLL, "measure", "--gpu", gpu, "--gpus", str(row["world"] * row["tp"]),
                   "--rank", str(row.get("rank", 0)), "-o", "json", "--", sys.executable, "-B",
                   str(HERE / TRAINERS[trainer]),
                   str(CONFIGS / f"{row['config']}.json"), file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        return None, done.stderr.strip().splitlines()[-3:]
    answer = json.loads(done.stdout)
    if "outOfMemory" in answer or "lastStep" not in answer:
        return None, ["out of memory" if "outOfMemory" in answer else "no step"]
    return answer["lastStep"], None


def main():
    path = pathlib.Path(sys.argv[1])
    dealer = DEALERS.get(path.name, deal)
    there = path.exists()
    with path.open(encoding="utf-8") if there else open(os.devnull, encoding="utf-8") as file:
        known = {row["id"].rsplit("-", 1)[0] for row in csv.DictReader(file)}
    with path.open("a", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, dealer.COLUMNS, restval="", lineterminator="\n")
        if not there:
            out.writeheader()
        for row in dealer.rows():
            if row["id"] in known or (sys.argv[2:] and row["id"] not in sys.argv[2:]):
                continue
            step, reason = measure(row)
            print(row["id"], row["wrapper"], row["config"], reason or step, flush=True)
            for gauge in ("allocated", "reserved") if step else ():
                out.writerow({**row, "id": f"{row['id']}-{gauge}", "what_is_measured": gauge,
                              "measured_value": step[f"{gauge}Bytes"]})
            file.flush()


if __name__ == "__main__":
    main()
