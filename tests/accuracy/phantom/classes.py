#!/usr/bin/env python3
"""Holds what Plimsoll reads of config.json against the classes of transformers, which count on torch's
meta device: configurations with sizes and switches drawn at random, some left out, some null.

    classes.py [--seed 1] [--each 12] [--write OUT.jsonl]

Prints each one whose parameters differ, why others were refused, and how many are the same; --write adds
two of each type to a file in the format of tests/server/catalog/hf_models.jsonl.
PLIMSOLL: the command line; build/client/plimsoll where it is not set. Needs torch and transformers, as
run.sh installs them.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import sys
import warnings

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import accuracy  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROWS = ROOT / 'estimator/catalog/hf_families.cc'
TYPE = re.compile(r'model_type = "([^"]+)"|Named\("([^"]+)"|Of\w+\("([^"]+)"')
SIZES = {
    ('vocab_size',): [1000, 32064, 50257],
    ('hidden_size', 'n_embd', 'd_model', 'dim'): [256, 384, 512],
    ('intermediate_size', 'hidden_dim', 'ffn_dim', 'd_ff'): [300, 512, 1024],
    ('n_inner',): [None, 300, 512],
    ('num_hidden_layers', 'n_layer', 'n_layers', 'num_layers'): [2, 3, 5],
    ('num_attention_heads', 'n_head', 'n_heads', 'num_heads', 'attention_heads'): [4, 8],
    ('num_key_value_heads',): [1, 2, 4, None],
    ('head_dim',): [32, 64, 80],
    ('max_position_embeddings', 'n_positions'): [512, 1024],
    ('moe_intermediate_size', 'shared_expert_intermediate_size'): [96, 128],
    ('num_experts', 'num_local_experts', 'n_routed_experts'): [4, 8],
    ('num_experts_per_tok', 'n_shared_experts'): [1, 2],
    ('first_k_dense_replace',): [0, 1, 2],
    ('kv_lora_rank', 'v_head_dim', 'qk_rope_head_dim', 'qk_nope_head_dim'): [32, 64],
    ('q_lora_rank',): [None, 96],
}
CHOICES = {name: values for names, values in SIZES.items() for name in names}
# No part of a network that is trained, or another network.
LEFT = {'return_dict', 'output_hidden_states', 'output_attentions', 'use_cache', 'is_encoder_decoder', 'is_decoder',
        'torchscript', 'add_cross_attention', 'tie_encoder_decoder', 'output_router_logits'}


def types():
    found = {name for names in TYPE.findall(ROWS.read_text()) for name in names if name}
    return sorted(found & set(transformers.CONFIG_MAPPING.keys()))


def draw(defaults, source):
    """Fields of one configuration: each is left out now and then."""
    fields = {}
    for name, value in defaults.items():
        if name in CHOICES:
            fields[name] = source.choice(CHOICES[name])
        elif isinstance(value, bool) and name not in LEFT:
            fields[name] = source.random() < 0.5
    kept = ('vocab_size', 'hidden_size', 'n_embd')
    return {name: value for name, value in fields.items() if name in kept or source.random() > 0.15}


def count(model_type, fields):
    """The name of the class and its parameters; None where it takes no such fields."""
    try:
        config = transformers.CONFIG_MAPPING[model_type](**fields)
        with torch.device('meta'):
            try:
                model = transformers.AutoModelForCausalLM.from_config(config)
            except ValueError:
                model = transformers.AutoModelForMaskedLM.from_config(config)
    except Exception:  # noqa: BLE001: whatever a class says against fields that were drawn
        return None
    return type(model).__name__, sum(parameter.numel() for parameter in model.parameters())


def cases(seed, each):
    source = random.Random(seed)
    for model_type in types():
        defaults = transformers.CONFIG_MAPPING[model_type]().to_dict()
        tries = (draw(defaults, source) for _ in range(5 * each))
        counted = ((fields, count(model_type, fields)) for fields in tries)
        found = [(fields, known) for fields, known in counted if known is not None][:each]
        for fields, (name, parameters) in found:
            yield model_type, {**fields, 'model_type': model_type, 'architectures': [name]}, parameters


def answer(configs):
    """What Plimsoll says of each: its parameters, or the words it refuses it with."""
    jobs = [{'job': {'model': {'hf_config': config}, 'runtime': {'framework': 'ddp'},
                     'training': {'micro_batch_size': 1, 'sequence_length': 512},
                     'cluster': {'gpu': 'h200-141gb-sxm', 'gpu_count': 1}}, 'detail': 'summary'} for config in configs]
    program = os.environ.get('PLIMSOLL', str(ROOT / 'build/client/plimsoll'))
    for said in accuracy.estimate(program, jobs):
        if 'error' in said:
            yield said['error']['message'].partition('\n')[0]
        else:
            yield int(said['ranks'][0]['parameter_count'])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--each', type=int, default=12)
    parser.add_argument('--write', type=pathlib.Path)
    options = parser.parse_args()
    warnings.filterwarnings('ignore')
    drawn = list(cases(options.seed, options.each))
    same, refused, lines = collections.Counter(), collections.Counter(), []
    for (model_type, config, parameters), said in zip(drawn, answer([config for _, config, _ in drawn])):
        if isinstance(said, str):
            refused[f'{model_type}: {said}'] += 1
        elif said != parameters:
            print(f'{model_type}: {said:,}, the class {parameters:,}: {json.dumps(config)}')
        else:
            same[model_type] += 1
            if same[model_type] <= 2:
                name = f'{model_type}, random {same[model_type]} of seed {options.seed}'
                lines.append(json.dumps({'name': name, 'parameters': parameters, 'config': config}, separators=(',', ':')))
    for words, times in refused.most_common():
        print(f'{times} refused: {words}')
    print(f'{sum(same.values())} of {len(drawn)} the same')
    if options.write:
        with options.write.open('a') as out:
            out.write('\n'.join(lines) + '\n')


if __name__ == '__main__':
    main()
