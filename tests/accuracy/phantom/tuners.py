"""What PEFT is told of a row: `lora r=8 targets=q_proj+v_proj`, `ia3 targets=k_proj+down_proj
feedforward=down_proj`, `prefix-tuning tokens=20 encoder=512`.
"""

import peft

PROMPTS = {
    "prompt-tuning": peft.PromptTuningConfig, "p-tuning": peft.PromptEncoderConfig,
    "prefix-tuning": peft.PrefixTuningConfig,
}


def words_of(text):
    """`lora r=8 dtype=bf16`: the first word, and those with values."""
    first, *rest = text.split() or [""]
    return first, dict(word.split("=") for word in rest)


def adapter_of(row):
    name, values = words_of(row["adapter"])
    if not name:
        return None
    task = "SEQ_CLS" if row["preference"].startswith("reward") else "CAUSAL_LM"
    if name in PROMPTS:
        return prompt_of(name, values, task)
    targets = values["targets"].split("+")
    targets = "all-linear" if targets == ["all-linear"] else targets
    if name == "ia3":
        inputs = [target for target in values["feedforward"].split("+") if target != "none"]
        return peft.IA3Config(target_modules=targets, feedforward_modules=inputs, task_type=task)
    return peft.LoraConfig(r=int(values["r"]), target_modules=targets,
                           lora_dropout=float(values.get("dropout", 0)), use_dora=name == "dora",
                           task_type=task)


def prompt_of(name, values, task):
    """Virtual tokens, and the width of what encodes them: `none` where nothing does."""
    options = {"num_virtual_tokens": int(values["tokens"]), "task_type": task}
    width = values.get("encoder", "none")
    if width != "none":
        options["encoder_hidden_size"] = int(width)
    if name == "prefix-tuning":
        options["prefix_projection"] = width != "none"
    return PROMPTS[name](**options)
