#!/usr/bin/env python3
"""A training job of TRL's trainers, as a row describes it: train_trl.py CONFIG.json ROW.json.

Nothing here knows of Plimsoll: `plimsoll measure` runs it unchanged. `preference` of the row says
which trainer: none SFT's, else `dpo`, `kto`, `reward`, `grpo` or `gkd`, and its reference, or
teacher: a configuration beside the student's. What GRPO samples comes from a server, as vLLM's
does: the answers of one, and their log-probabilities, are made here, as long as the row says. GKD
reads answers that are there (`lmbda` 0).
"""

import pathlib
import sys
import tempfile

import datasets
import tokenizers
import torch
import transformers
import trl
from trl.experimental import gkd

import train_hf
from train import choose_kernels, freeze
from tuners import adapter_of, words_of

ROWS = 512
CLASSES = {
    "": (trl.SFTTrainer, trl.SFTConfig), "dpo": (trl.DPOTrainer, trl.DPOConfig),
    "kto": (trl.KTOTrainer, trl.KTOConfig), "reward": (trl.RewardTrainer, trl.RewardConfig),
    "grpo": (trl.GRPOTrainer, trl.GRPOConfig), "gkd": (gkd.GKDTrainer, gkd.GKDConfig),
}
ANSWERS = 2  # to each prompt


def tokenizer():
    words = {"a": 0, "<pad>": 1, "<eos>": 2}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="a"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>",
                                                eos_token="<eos>")


def answer(length):
    """So many tokens, of which the last ends the text."""
    return "a " * (length - 1)


def data_of(row, method):
    length = int(row["sequence"])
    if method in ("", "gkd"):
        examples = {"input_ids": [[0] * length]}
    elif method == "kto":
        examples = {"prompt": ["a "], "completion": [answer(length - 1)], "label": [True]}
    elif method == "reward":
        examples = {"chosen": [answer(length)], "rejected": [answer(length)]}
    elif method == "grpo":
        examples = {"prompt": ["a "]}
    else:
        text = [answer(length - 1)]
        examples = {"prompt": ["a "], "chosen": text, "rejected": text}
    return datasets.Dataset.from_dict({name: value * ROWS for name, value in examples.items()})


def arguments_of(row, method, values, folder):
    length = int(row["sequence"])
    if method == "grpo":  # a reference where it is compared with one
        beta = 0.04 if values.get("reference") else 0.0
        return CLASSES[method][1](**train_hf.arguments_of(row, folder), beta=beta,
                                  num_generations=ANSWERS, max_completion_length=length - 1)
    options = {**train_hf.arguments_of(row, folder), "max_length": length}
    if values.get("reference") == "precomputed":
        options["precompute_ref_log_probs"] = True
    if method == "gkd":
        options.update(lmbda=0.0, beta=float(values["beta"]))
    if row.get("offload") == "activations":
        options["activation_offloading"] = True
    return CLASSES[method][1](**options)


def model_of(values, row, method):
    config = train_hf.config_of(values, row)
    config.pad_token_id = 1
    kind = transformers.AutoModelForCausalLM
    if method == "reward":
        config.num_labels = 1
        kind = transformers.AutoModelForSequenceClassification
    narrow = row["precision"] == "bf16-pure" or row["adapter"] and row["precision"] != "fp32"
    half = torch.float16 if row["precision"] == "fp16-autocast" else torch.bfloat16
    model = kind.from_config(config, dtype=half if narrow else torch.float32)
    freeze(model, row)
    return loaded_in_bits(model, row) if row.get("quantization") else model


def loaded_in_bits(model, row):
    """As it is read from a hub, by bitsandbytes."""
    form, values = words_of(row["quantization"])
    if form == "int8":
        config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    else:
        config = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type=form,
            bnb_4bit_use_double_quant=values["double"] == "True",
            bnb_4bit_compute_dtype=torch.bfloat16)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder, quantization_config=config, device_map={"": 0},
                                           dtype=torch.bfloat16)


def batch_of(examples):
    """What GKD reads: all but the first token are an answer's."""
    tokens = torch.tensor([example["input_ids"] for example in examples])
    labels = tokens.clone()
    labels[:, 0] = -100
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def teacher_of(values, row, folder):
    """Whole, in the dtype of the student's weights."""
    config = train_hf.load(folder / f"{values['teacher']}.json")
    return model_of(config, {**row, "layers": "0"}, "")


class Server:
    """In the place of vLLM's: a word for each token."""

    def __init__(self, length):
        self.length = length

    def sync_weights(self):
        pass

    def generate(self, prompts, **_):
        count = len(prompts)
        return None, [[0] * self.length] * count, [[[0.0]] * self.length] * count, None


def served(trainer, row):
    """A trainer of GRPO asks a server, and reads the old log-probabilities of its answers."""
    trainer.vllm_generation = Server(int(row["sequence"]) - 1)
    trainer.use_vllm = True
    trainer._last_loaded_step = -1


def main():
    config, row = train_hf.load(sys.argv[1]), train_hf.load(sys.argv[2])
    choose_kernels(row, config)
    method, values = words_of(row["preference"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = arguments_of(row, method, values, folder)
        model = model_of(config, row, method)
        options = {}
        adapter = adapter_of(row)
        if adapter is not None:
            options["peft_config"] = adapter
        elif values.get("reference") == "model" and method != "grpo":
            options["ref_model"] = model_of(config, row, method)
        if method == "gkd":
            options["teacher_model"] = teacher_of(values, row, pathlib.Path(sys.argv[1]).parent)
            options["data_collator"] = batch_of
        if method == "grpo":
            options["reward_funcs"] = lambda completions, **_: [0.0] * len(completions)
            if values.get("reference") == "model":  # which it reads itself
                model.save_pretrained(f"{folder}/policy")
                model.config._name_or_path = f"{folder}/policy"
        trainer = CLASSES[method][0](model, args=arguments, train_dataset=data_of(row, method),
                                     processing_class=tokenizer(), **options)
        if method == "grpo":
            served(trainer, row)
        trainer.train()


if __name__ == "__main__":
    main()
