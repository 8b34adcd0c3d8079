"""Counting configurations that nothing blocks, without a program to ask."""

import unittest

import coverage


class CoverageTest(unittest.TestCase):
    ROWS = [
        ("a", ()),
        ("a", ("LoRA",)),
        ("a", ("LoRA", "diffusion")),
        ("a", ("diffusion",)),
        ("b", ("LoRA",)),
    ]

    def test_a_configuration_counts_once_all_its_blockers_are_gone(self):
        counts = coverage.shares(self.ROWS, {("a", ("LoRA",))})
        self.assertEqual(dict(counts), {"a": [4, 2], "b": [1, 0]})

    def test_each_project_counts_the_same(self):
        self.assertEqual(coverage.mean_share(coverage.shares(self.ROWS, set())), 0.125)
        both = {("a", ("LoRA",)), ("b", ("LoRA",))}
        self.assertEqual(coverage.mean_share(coverage.shares(self.ROWS, both)), 0.75)

    def test_a_kind_is_gone_where_its_job_is_answered(self):
        jobs = {("a", "LoRA"): {"n": 1}, ("b", "LoRA"): {"n": 2}, ("a", "diffusion"): None}
        asked = []

        def ask(batch):
            asked.extend(batch)
            return [{"verdict": "VERDICT_FITS"}, {"error": {"code": 3}}]

        self.assertEqual(coverage.answered(jobs, ask), {("a", "LoRA")})
        self.assertEqual(asked, [{"n": 1}, {"n": 2}])

    def test_a_kind_that_no_field_says_is_not_asked(self):
        runtime = {"framework": "ddp"}
        self.assertIsNone(coverage.job_of(("LoRA", "diffusion"), runtime))
        self.assertIsNone(coverage.job_of(("LoRA",), None))
        job = coverage.job_of(("LoRA",), runtime)
        self.assertEqual(job["training"]["adapter"], {"method": "lora"})
        self.assertEqual(job["runtime"], runtime)
        two = coverage.job_of(("DPO/KTO/ORPO", "LoRA"), runtime)
        self.assertEqual(set(two["training"]), {"sequence_length", "adapter", "preference"})
        split = coverage.job_of(("context/sequence parallel",), runtime)
        self.assertEqual(split["parallelism"], {"context_parallel_size": 2})
        reward = coverage.job_of(("reward/classifier/embedding head",), runtime)
        self.assertEqual(reward["model"]["transformer"]["label_count"], 1)

    def test_a_class_of_its_own_is_asked_as_such(self):
        hybrid = coverage.kind_of(coverage.HYBRIDS, "OLMo-hybrid/OLMo-hybrid-7B-sft.py", "")
        self.assertEqual(hybrid, coverage.OLMO_HYBRID)
        self.assertEqual(coverage.kind_of(coverage.HYBRIDS, "a", "Qwen/Qwen3.5-4B"),
                         "gated delta networks")
        self.assertEqual(coverage.kind_of(coverage.HYBRIDS, "mamba.yml", ""), coverage.HYBRIDS)
        job = coverage.job_of((hybrid,), {"framework": "fsdp2"})
        self.assertEqual(job["model"]["hf_config"]["model_type"], "olmo_hybrid")
        self.assertIsNone(coverage.job_of((hybrid, "MLA"), {"framework": "fsdp2"}))

    def test_recipes_on_one_gpu_are_asked_as_such(self):
        tune = "pytorch/torchtune"
        alone = coverage.word_of(tune, "recipes/configs/llama3/8B_lora_single_device.yaml")
        self.assertEqual(alone, "single_device")
        self.assertEqual(coverage.word_of(tune, "recipes/configs/llama3/8B_lora.yaml"), "")
        self.assertEqual(coverage.word_of("a", "single_device"), "")
        one = {"framework": "ddp", "trainer": "torchtune"}
        self.assertEqual(coverage.place_of(tune, alone), (one, 1))
        self.assertEqual(coverage.place_of(tune, ""), (coverage.RUNTIMES[tune], 8))

    def test_a_word_of_a_path_says_what_runs_it(self):
        axolotl = "axolotl-ai-cloud/axolotl"
        places = {
            path: coverage.place_of(axolotl, coverage.word_of(axolotl, path))[0]["framework"]
            for path in ("a-qlora-fsdp.yml", "b-fft-fsdp2.yaml", "c-ds-zero3.yaml", "d.yml")
        }
        self.assertEqual(list(places.values()), ["fsdp1", "fsdp2", "deepspeed", "ddp"])
        swift = "modelscope/ms-swift"
        self.assertTrue(coverage.spreads(swift, coverage.word_of(swift, "examples/megatron/moe.sh")))
        self.assertFalse(coverage.spreads(swift, ""))

    def test_what_is_refused_whatever_its_kinds_stays_blocked(self):
        tune = "pytorch/torchtune"
        kinds = coverage.kinds_of(tune, "configs/gemma2/2B_lora_single_device.yaml", "LoRA", "")
        self.assertEqual(kinds, ("LoRA", coverage.OTHERS))
        self.assertIsNone(coverage.job_of(kinds, coverage.RUNTIMES[tune]))
        self.assertEqual(coverage.kinds_of(tune, "configs/gemma2/2B_full.yaml", "", ""), ())
        self.assertEqual(coverage.kinds_of(tune, "llama3/8B_lora.yaml", "A;B", ""), ("A", "B"))

    def test_a_word_of_a_path_says_which_adapter(self):
        path = "configs/llama3/8B_qdora_single_device.yaml"
        kinds = coverage.kinds_of("pytorch/torchtune", path, "LoRA;QLoRA (4/8-bit base)", "")
        self.assertEqual(kinds, ("DoRA", "QDoRA"))
        training = coverage.job_of(kinds, coverage.RUNTIMES["pytorch/torchtune"])["training"]
        self.assertEqual(training["adapter"], {"method": "dora"})
        self.assertEqual(training["quantization"], {"format": "nf4"})

    def test_experts_are_spread_where_a_trainer_does_so(self):
        kinds = ("MoE experts + EP",)
        spread = coverage.job_of(kinds, {"framework": "megatron-core"})
        self.assertEqual(spread["parallelism"], {"expert_parallel_size": 2})
        whole = coverage.job_of(kinds, coverage.DEFAULT_RUNTIME, spreads=False)
        self.assertEqual(whole["parallelism"], {})
        self.assertEqual(whole["model"]["transformer"]["expert_count"], 8)

    def test_adapters_of_latent_attention_name_their_modules(self):
        job = coverage.job_of(("LoRA", "MLA"), coverage.DEFAULT_RUNTIME)
        self.assertEqual(job["training"]["adapter"]["target_modules"], ["all-linear"])
        self.assertEqual(coverage.LORA, {"adapter": {"method": "lora"}})

    def test_preferences_are_trls(self):
        job = coverage.job_of(("DPO/KTO/ORPO",), coverage.DEFAULT_RUNTIME)
        self.assertEqual(job["runtime"]["trainer"], "trl")
        self.assertEqual(coverage.DEFAULT_RUNTIME["trainer"], "hf-trainer")

    def test_delta_networks_are_told_by_the_model(self):
        hybrid = "SSM/linear-attention hybrids"
        kinds = coverage.kinds_of("a", "x.sh", hybrid, "Qwen/Qwen3.5-0.8B")
        self.assertEqual(kinds, ("gated delta networks",))
        shape = coverage.job_of(kinds, coverage.DEFAULT_RUNTIME)["model"]["transformer"]
        self.assertEqual(shape["linear_value_head_count"], 16)
        other = coverage.kinds_of("a", "x.sh", hybrid, "nvidia/Nemotron-H-8B")
        self.assertIsNone(coverage.job_of(other, coverage.DEFAULT_RUNTIME))

    def test_optimizers_are_told_apart_by_their_paths(self):
        tune = "pytorch/torchtune"
        one = coverage.kinds_of(tune, "qwen2/7B_full_single_device.yaml", "optimizers", "")
        self.assertEqual(one, ("steps in backward",))
        job = coverage.job_of(one, coverage.RUNTIMES[tune])
        self.assertTrue(job["training"]["optimizer"]["in_backward"])
        examples = "deepspeedai/DeepSpeedExamples"
        path = "training/bing_bert/1-bit_adam/nccl/ds_train_bert_onebitadam_bsz4k_seq128_nccl.sh"
        signs = coverage.kinds_of(examples, path, "optimizers", "")
        place = coverage.place_of(examples, coverage.word_of(examples, path))
        job = coverage.job_of(signs, *place)
        self.assertEqual(job["training"]["optimizer"], {"name": "onebit-adam"})
        self.assertEqual(job["runtime"]["versions"], {"deepspeed": "0.18"})
        muon = coverage.kinds_of("a", "examples/muon.sh", "LoRA;optimizers", "")
        self.assertEqual(muon, ("LoRA", "muon"))
        self.assertIsNone(coverage.job_of(coverage.kinds_of("a", "x.sh", "optimizers", ""), {}))

    def test_eight_bits_are_told_by_a_configurations_name(self):
        def kinds(name):
            return coverage.kinds_of("a", f"llama3.py {name}", coverage.EIGHT_BITS, "")

        self.assertEqual(kinds("llama3_8b_h100_fp8cs_config"), ("fp8 tensorwise",))
        job = coverage.job_of(kinds("llama3_8b_gb200_fp8mx_config"), {"framework": "megatron-core"})
        self.assertEqual(job["training"]["precision"]["fp8_recipe"], "mxfp8")
        self.assertEqual(job["cluster"]["gpu"], "b200-180gb")
        nvfp4 = coverage.job_of(kinds("llama3_8b_gb200_nvfp4_config"), {"framework": "megatron-core"})
        self.assertEqual(nvfp4["training"]["precision"], {"preset": "fp4-mixed"})


if __name__ == "__main__":
    unittest.main()
