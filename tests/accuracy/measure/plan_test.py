"""Tests of how a job becomes a plan: what runs, as what, and what is refused with which words."""

import json
import pathlib
import re
import tempfile
import unittest

import plan as plans

ROOT = pathlib.Path(__file__).resolve().parents[3]
LLAMA = {
    "hidden_size": 64,
    "layer_count": 2,
    "head_count": 4,
    "kv_head_count": 2,
    "ffn_size": 128,
    "vocab_size": 256,
    "gated_mlp": True,
}


def job(**changes):
    """A job that runs, with sections changed: `training={"attention": "eager"}`."""
    made = {
        "model": {"transformer": LLAMA},
        "training": {"sequence_length": 128, "precision": {"preset": "bf16-pure"}},
        "parallelism": {},
        "runtime": {},
        "cluster": {"gpu": "h100-80gb-sxm"},
    }
    for section, fields in changes.items():
        made[section] = {**made[section], **fields} if section != "model" else fields
    return made


def sharded(**changes):
    ranks = {"data_parallel_size": 8, "zero_stage": 3, **changes.pop("parallelism", {})}
    training = {"precision": {"preset": "bf16-mixed"}, **changes.pop("training", {})}
    return job(parallelism=ranks, training=training, **changes)


# What is asked for, and what of the plan says so.
RUNS = [
    ("one GPU is a plain module", job(), {"framework": "single", "world_size": 1}),
    ("ranks of DDP", job(parallelism={"data_parallel_size": 4}),
     {"framework": "ddp", "world_size": 4, "implementation": "foreach"}),
    ("ranks from the number of GPUs", job(cluster={"gpu_count": 2}),
     {"framework": "ddp", "world_size": 2}),
    ("ZeRO 3 is FSDP2", sharded(),
     {"framework": "fsdp2", "reshard_after_forward": True, "implementation": "fused",
      "shard_group_size": 8}),
    ("FSDP2 with ZeRO 2 keeps weights",
     sharded(parallelism={"zero_stage": 2}, runtime={"framework": "fsdp2"}),
     {"framework": "fsdp2", "reshard_after_forward": False}),
    ("what reshards is said", sharded(runtime={"reshard_after_forward": False}),
     {"reshard_after_forward": False}),
    ("HSDP", sharded(parallelism={"shard_group_size": 4}), {"shard_group_size": 4}),
    ("bucket views", job(parallelism={"data_parallel_size": 2},
                         runtime={"gradient_as_bucket_view": True}), {"bucket_view": True}),
    ("pure bf16", job(), {"parameter_dtype": "bfloat16", "mixed_dtype": "", "autocast_dtype": ""}),
    ("fp32", job(training={"precision": {"preset": "fp32"}}), {"parameter_dtype": "float32"}),
    ("autocast", job(training={"precision": {"preset": "bf16-autocast"}}),
     {"parameter_dtype": "float32", "autocast_dtype": "bfloat16"}),
    ("mixed is FSDP2's policy", sharded(),
     {"parameter_dtype": "float32", "mixed_dtype": "bfloat16", "reduce_dtype": "float32"}),
    ("mixed is the default of FSDP2", sharded(training={"precision": {}}),
     {"mixed_dtype": "bfloat16"}),
    ("reduction in bf16", sharded(training={"precision": {"reduce_dtype": "bf16"}}),
     {"reduce_dtype": "bfloat16"}),
    ("one micro-batch unless said", job(), {"micro_batch_size": 1, "micro_batch_count": 1}),
    ("micro-batches of a rank",
     sharded(training={"micro_batch_size": 2, "global_batch_size": 64}),
     {"micro_batch_size": 2, "micro_batch_count": 4}),
    ("no recomputation", job(), {"recompute_interval": 0}),
    ("full", job(training={"recompute": {"mode": "full"}}), {"recompute_interval": 1}),
    ("every third", job(training={"recompute": {"mode": "every-nth", "interval": 3}}),
     {"recompute_interval": 3}),
    ("the kernel", job(training={"attention": "memory-efficient"}),
     {"attention": "memory-efficient"}),
    ("torch's own choice of kernel", job(), {"attention": "auto"}),
    ("clipping by default", job(), {"gradient_clipping": True}),
    ("no clipping", job(training={"gradient_clipping": False}), {"gradient_clipping": False}),
    ("the optimizer",
     job(training={"optimizer": {"name": "sgd-momentum", "implementation": "for-loop"}}),
     {"optimizer": "sgd-momentum", "implementation": "for-loop"}),
    ("the torch that is asked for", job(runtime={"versions": {"torch": "2.6"}}),
     {"torch_version": "2.6"}),
    ("no settings", job(), {"environment": {}, "memory_fraction": 0.0}),
    ("cuBLAS's workspace", job(runtime={"cublas_workspace_config": ":4096:8"}),
     {"environment": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}}),
    ("a share of the GPU", job(runtime={"allocator": {"memory_fraction": 0.5}}),
     {"environment": {}, "memory_fraction": 0.5}),
    ("an encoder predicts masked tokens", job(model={"name": "bert-base-uncased"}),
     {"head": "masked"}),
    ("a decoder predicts the next", job(model={"name": "pythia-70m"}), {"head": "causal"}),
]

# What is refused, and its reason to the letter.
REFUSED = [
    (job(parallelism={"tensor_parallel_size": 2}),
     "parallelism.tensor_parallel_size: 2; the kit runs one rank of data parallelism"),
    (job(parallelism={"pipeline_parallel_size": 4}),
     "parallelism.pipeline_parallel_size: 4; the kit runs one rank of data parallelism"),
    (job(parallelism={"virtual_pipeline_size": 2}),
     "parallelism.virtual_pipeline_size: set; the kit does not run it"),
    (job(parallelism={"zero_stage": 1}), "parallelism.zero_stage: 1; ddp shards nothing"),
    (sharded(parallelism={"zero_stage": 1}, runtime={"framework": "fsdp2"}),
     "parallelism.zero_stage: 1; fsdp2 is 2 or 3"),
    (sharded(parallelism={"shard_group_size": 3}),
     "parallelism.shard_group_size: 3; must divide 8 ranks"),
    (job(parallelism={"data_parallel_size": 4, "shard_group_size": 2}),
     "parallelism.shard_group_size: 2; ddp shards nothing"),
    (job(parallelism={"data_parallel_size": 4}, cluster={"gpu_count": 8}),
     "cluster.gpu_count: 8; the ranks are 4"),
    (job(runtime={"framework": "deepspeed"}),
     "runtime.framework: deepspeed; the kit runs ddp and fsdp2"),
    (job(runtime={"trainer": "torchtitan"}), "runtime.trainer: set; the kit does not run it"),
    (job(runtime={"compile": True}), "runtime.compile: true; the kit runs eager modules"),
    (job(runtime={"reshard_after_forward": True}),
     "runtime.reshard_after_forward: True; ddp does not have it"),
    (job(runtime={"versions": {"nccl": "2.20"}}),
     "runtime.versions.nccl: set; the kit does not run it"),
    (job(runtime={"allocator": {"max_split_size_bytes": 2**20 + 1}}),
     "runtime.allocator.max_split_size_bytes: 1048577; torch takes whole MiB"),
    (job(runtime={"allocator": {"roundup_power2_division_count": [1, 2]}}),
     "runtime.allocator.roundup_power2_division_count: [1, 2]; the kit takes one number"),
    (job(training={"precision": {"preset": "bf16-mixed"}}),
     "training.precision.preset: bf16-mixed; plain ddp has no such loop"),
    (job(training={"precision": {}}),
     "training.precision.preset: bf16-mixed; plain ddp has no such loop"),
    (sharded(training={"precision": {"preset": "fp8-mixed"}}),
     "training.precision.preset: fp8-mixed; plain fsdp2 has no such loop"),
    (job(training={"precision": {"preset": "fp32", "reduce_dtype": "bf16"}}),
     "training.precision.reduce_dtype: bf16; only fsdp2, as fp32, bf16, fp16"),
    (job(training={"precision": {"preset": "fp32", "master_dtype": "bf16"}}),
     "training.precision.master_dtype: set; the kit does not run it"),
    (job(training={"optimizer": {"name": "muon"}}),
     "training.optimizer.name: muon; the kit runs sgd, sgd-momentum, rmsprop, adam, adamw"),
    (job(training={"optimizer": {"name": "rmsprop", "implementation": "fused"}}),
     "training.optimizer.implementation: fused; torch's rmsprop has none"),
    (job(training={"recompute": {"mode": "per-op"}}),
     "training.recompute.mode: per-op; the kit runs none, full and every-nth"),
    (job(training={"recompute": {"mode": "every-nth"}}),
     "training.recompute.interval: absent; must be given"),
    (job(training={"recompute": {"mode": "full", "unit_layer_count": 2}}),
     "training.recompute.unit_layer_count: 2; the kit runs 1"),
    (job(training={"loss": {"implementation": "fused"}}),
     "training.loss.implementation: fused; the kit runs plain"),
    (job(training={"attention": "ring"}), "training.attention: ring; the kit knows no such kernel"),
    (job(training={"global_batch_size": 3, "micro_batch_size": 2}),
     "training.global_batch_size: 3; must be a multiple of 2"),
    (job(training={"peft": {"rank": 8}}), "training.peft: set; the kit does not run it"),
    ({**job(), "offload": {}}, "offload: set; the kit knows no such field"),
    (job(model={"name": "llama-9"}), "model.name: llama-9; the catalog has no such model"),
    (job(model={}), "model: []; one source is required"),
    (job(model={"hf_config": {"hidden_size": 4}}),
     "model.hf_config: no model_type; transformers needs it"),
    (job(model={"transformer": {**LLAMA, "norm": "layer-norm"}}),
     "model.transformer.norm: layer-norm; Llama's is rms-norm"),
    (job(model={"transformer": {**LLAMA, "gated_mlp": False}}),
     "model.transformer.gated_mlp: false; the kit runs Llama's shape alone"),
    (job(model={"transformer": {**LLAMA, "qkv_bias": True}}),
     "model.transformer.qkv_bias: True; Llama has all or none"),
    (job(model={"transformer": {**LLAMA, "position_count": 8}}),
     "model.transformer.position_count: 8; Llama has none"),
    (job(model={"transformer": {k: v for k, v in LLAMA.items() if k != "vocab_size"}}),
     "model.transformer.vocab_size: absent; must be given"),
]


class PlanTest(unittest.TestCase):
    def test_what_runs(self):
        for name, asked, expected in RUNS:
            with self.subTest(name):
                made = plans.plan_of(asked)
                self.assertEqual({key: getattr(made, key) for key in expected}, expected)

    def test_what_is_refused(self):
        for asked, reason in REFUSED:
            with self.subTest(reason):
                with self.assertRaises(plans.Refused) as caught:
                    plans.plan_of(asked)
                self.assertEqual(str(caught.exception), reason)

    def test_absent_sequence_length(self):
        asked = job()
        del asked["training"]["sequence_length"]
        with self.assertRaisesRegex(plans.Refused, "training.sequence_length: absent"):
            plans.plan_of(asked)

    def test_allocator_settings(self):
        allocator = {
            "expandable_segments": True,
            "max_split_size_bytes": 64 * 2**20,
            "roundup_power2_division_count": [8],
            "garbage_collection_threshold": 0.8,
            "memory_fraction": 0.9,
        }
        made = plans.plan_of(job(runtime={"allocator": allocator}))
        text = (
            "expandable_segments:True,max_split_size_mb:64,roundup_power2_divisions:8,"
            "garbage_collection_threshold:0.8"
        )
        self.assertEqual(
            made.environment, {"PYTORCH_ALLOC_CONF": text, "PYTORCH_CUDA_ALLOC_CONF": text}
        )

    def test_a_spelled_out_llama(self):
        made = plans.plan_of(job(model={"transformer": {**LLAMA, "head_size": 32}}))
        self.assertEqual(
            made.config,
            {
                "model_type": "llama",
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 32,
                "intermediate_size": 128,
                "vocab_size": 256,
                "tie_word_embeddings": False,
                "attention_bias": False,
            },
        )


class ContractTest(unittest.TestCase):
    """The kit's words and fields are the API's."""

    def test_words(self):
        words = (ROOT / "estimator" / "job" / "vocabularies.h").read_text(encoding="utf-8")
        known = set(re.findall(r'\{"([a-z0-9-]+)"', words))
        presets = {preset for _, preset in plans.PRECISIONS}
        self.assertLessEqual({*plans.OPTIMIZERS, *presets}, known)

    def test_fields(self):
        proto = (ROOT / "proto" / "plimsoll" / "v1" / "job.proto").read_text(encoding="utf-8")
        bodies = dict(re.findall(r"^message (\w+) \{(.*?)^\}", proto, re.S | re.M))
        types = {"model": "Model", "training": "Training", "parallelism": "Parallelism",
                 "runtime": "Runtime", "cluster": "Cluster", "training.precision": "Precision",
                 "training.optimizer": "Optimizer", "training.recompute": "Recompute",
                 "training.loss": "Loss", "runtime.allocator": "Allocator"}
        for path, message in types.items():
            fields = set(re.findall(r"\b([a-z0-9_]+) = \d+;", bodies[message]))
            self.assertLessEqual(plans.FIELDS[path], fields, path)

    def test_every_model_of_the_catalog_has_a_plan(self):
        names = [path.stem for path in plans.CATALOG.glob("*.json")]
        self.assertGreater(len(names), 100)
        for name in names:
            self.assertTrue(plans.plan_of(job(model={"name": name})).config["model_type"], name)


class FilesTest(unittest.TestCase):
    def test_a_config_beside_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            config = {"model_type": "gpt2", "n_layer": 3}
            pathlib.Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
            path = pathlib.Path(folder, "job.json")
            path.write_text(json.dumps(job(model={"hf_config": "config.json"})), encoding="utf-8")
            self.assertEqual(plans.plan_of(plans.read_job(path)).config, config)

    def test_a_gpu_by_its_names(self):
        gpus = {"h100-80gb-sxm": {"aliases": ["h100", "NVIDIA H100 80GB HBM3"]}, "t4-16gb": {}}
        for name in ("h100", "H100-80GB-SXM", "NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3"):
            self.assertEqual(plans.gpu_of(name, gpus), "h100-80gb-sxm")
        self.assertEqual(plans.gpu_of("t4-16gb", gpus), "t4-16gb")
        self.assertIsNone(plans.gpu_of("NVIDIA GeForce", gpus))



class ReadingTest(unittest.TestCase):
    """A file that is no job is one line, not a traceback."""

    def test_what_is_no_job_is_said(self):
        cases = {"[": "no YAML: while parsing", "just text": "no job: a mapping of fields is wanted"}
        try:
            import yaml  # noqa: F401  pylint: disable=import-outside-toplevel,unused-import
        except ImportError:
            self.skipTest("no PyYAML")
        for text, message in cases.items():
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(text)
                file.flush()
                with self.assertRaisesRegex(ValueError, message):
                    plans.read_job(file.name)


if __name__ == "__main__":
    unittest.main()
