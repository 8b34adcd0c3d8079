#!/usr/bin/env python3
"""Counts the parameters of every model of the catalog with `transformers`.

For maintainers, after adding or changing a file under models/. Makes each
config.json into its model on torch's meta device, which allocates nothing, and
writes parameter_counts.yaml beside this script. A parameter that two modules
share counts once. Needs the packages torch and transformers.

    python3 count_parameters.py            # all models, rewrites the file
    python3 count_parameters.py llama-7b   # prints the counts of some
"""

import json
import pathlib
import sys

import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent
MASKED = ("bert", "roberta", "xlm-roberta")


def read_config(path):
    """Returns the configuration that a file holds."""
    fields = json.loads(path.read_text())
    return transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)


def count(path):
    """Returns the parameters of one model and the class that was counted."""
    config = read_config(path)
    auto = (
        transformers.AutoModelForMaskedLM
        if config.model_type in MASKED
        else transformers.AutoModelForCausalLM
    )
    with torch.device("meta"):
        model = auto.from_config(config)
    model.tie_weights()
    unique = {id(parameter): parameter.numel() for parameter in model.parameters()}
    return sum(unique.values()), type(model).__name__


def main(names):
    paths = sorted((FOLDER / "models").glob("*.json"), key=lambda path: path.stem)
    if names:
        paths = [path for path in paths if path.stem in names]
    rows = [(path.stem, *count(path)) for path in paths]
    if names:
        for name, parameters, kind in rows:
            print(f"{name}: {parameters} ({kind})")
        return
    version = transformers.__version__
    lines = [
        "# Parameters of each model of the catalog, tied tensors once. Written by",
        "# count_parameters.py; do not edit. Of a multimodal model, the text model alone.",
        f"source: transformers {version}, torch {torch.__version__.split('+')[0]}, meta device",
        "models:",
    ]
    lines += [f"  {name}: {{count: {parameters}, class: {kind}}}" for name, parameters, kind in rows]
    (FOLDER / "parameter_counts.yaml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
