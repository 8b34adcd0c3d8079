#!/usr/bin/env python3
"""A training job of torchtitan 0.3's own trainer, as a row describes it:
train_titan.py CONFIG.json ROW.json.

What is not torchtitan's: tokens that nobody wrote, and where documents begin and how many tokens go
to each rank's experts, which a GPU that computes nothing cannot say. Nothing here knows of Plimsoll.
"""

import dataclasses
import importlib
import json
import pathlib
import sys
import tempfile

for name in ("moe_training", "mx_formats"):  # quantization that no row asks for
    sys.modules[f"torchao.prototype.{name}"] = None

import torch
from torchtitan.components import dataloader, loss, tokenizer
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.models.common import attention, config_utils, decoder, token_dispatcher

STEPS = 3
FLAVORS = {
    "llama-3.1-8b": ("llama3", "8B"), "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"), "qwen3-4b": ("qwen3", "4B"), "qwen3-8b": ("qwen3", "8B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"), "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"),
}
RECOMPUTES = {"none": None, "per-op": SelectiveAC.Config(), "full": FullAC.Config()}


class Tokens(dataloader.BaseDataLoader):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(dataloader.BaseDataLoader.Config):
        pass

    def __init__(self, config, *, seq_len, local_batch_size, **_):
        del config
        self.shape = (local_batch_size, seq_len)

    def __iter__(self):
        while True:
            ids = torch.zeros(self.shape, dtype=torch.long)
            positions = torch.arange(self.shape[1]).repeat(self.shape[0], 1)
            yield {"input": ids, "positions": positions}, ids.clone()

    def state_dict(self):
        return {}

    def load_state_dict(self, _):
        pass


class Words(tokenizer.BaseTokenizer):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(tokenizer.BaseTokenizer.Config):
        pass

    def __init__(self, config=None, **_):
        del config
        super().__init__()

    def encode(self, *_, **__):
        return []

    def decode(self, *_, **__):
        return ""

    def get_vocab_size(self):
        return 1


def one_document_a_sequence(positions, **_):
    batch, length = positions.shape
    ends = torch.arange(0, (batch + 1) * length, length, dtype=torch.int32).to(positions.device)
    return attention.VarlenMetadata(cu_seq_q=ends, cu_seq_k=ends, max_q=length, max_k=length)


def share_alike():
    """Numbers of tokens come from the GPU: each rank's share of all takes their place."""
    dispatcher = token_dispatcher.AllToAllTokenDispatcher
    reorder, count = dispatcher._local_reorder, dispatcher._sync_token_count_exchange
    rows = []

    def reordering(self, *arguments):
        sorted_rows = reorder(self, *arguments)
        rows[:] = [len(sorted_rows[0])]
        return sorted_rows

    def counting(self, *arguments):
        counts, to_others, from_others = count(self, *arguments)
        share = rows[0] // len(to_others)
        return counts, [share] * len(to_others), [share] * len(from_others)

    dispatcher._local_reorder, dispatcher._sync_token_count_exchange = reordering, counting


def config_of(name, row, folder):
    family, flavor = FLAVORS[name]
    models = importlib.import_module(f"torchtitan.models.{family}")
    registry = importlib.import_module(f"torchtitan.models.{family}.config_registry")
    backend = "flex" if family == "deepseek_v3" else "varlen"
    spec = models.model_registry(flavor, attn_backend=backend)
    if int(row["layers"] or 0):
        spec.model.layers = spec.model.layers[:int(row["layers"])]
    config = getattr(registry, f"{family}_debugmodel")()
    config.model_spec, config.dump_folder = spec, folder
    config.dataloader, config.tokenizer = Tokens.Config(), Words.Config()
    config.training = dataclasses.replace(
        config.training, steps=STEPS, disable_cuda_graphs=True, seq_len=int(row["sequence"]),
        local_batch_size=int(row["micro_batch"]),
        global_batch_size=int(row["micro_batch"]) * int(row["accumulate"]) * int(row["world"]))
    config.parallelism = dataclasses.replace(
        config.parallelism, tensor_parallel_degree=int(row["tp"]),
        expert_parallel_degree=int(row.get("ep") or 1))
    config.compile = dataclasses.replace(config.compile, enable=False)
    config.checkpoint.enable = False
    config.activation_checkpoint = RECOMPUTES[row["recompute"]]
    plain = loss.CrossEntropyLoss.Config(global_vocab_size=config_utils.decoder_vocab_size(spec))
    sliced = row["loss"] == "chunked"
    config.loss = loss.ChunkedLossWrapper.Config(loss_fn=plain) if sliced else plain
    return config


def main():
    with open(sys.argv[2], encoding="utf-8") as file:
        row = json.load(file)
    decoder.create_varlen_metadata_for_document = one_document_a_sequence
    share_alike()
    with tempfile.TemporaryDirectory() as folder:
        config_of(pathlib.Path(sys.argv[1]).stem, row, folder).build().train()


if __name__ == "__main__":
    main()
