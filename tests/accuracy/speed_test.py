"""Tests of how rows of measured speed become jobs and step times, on the committed rows."""

import collections
import pathlib
import unittest

import measured
import speed
import speed_jobs
import speed_rows
import speed_sets

DATA = pathlib.Path(__file__).resolve().parent / "data"
FILES = speed_rows.read_folder(DATA)
KEPT = {row.id: row for rows in FILES.values() for row in speed_rows.one_figure_each(rows)[0]}


def changed(row_id, **columns):
    return measured.Row({**KEPT[row_id].columns(), **columns})


def job(row_id, **columns):
    return speed_jobs.request_of(changed(row_id, **columns))["job"]


def seconds(row_id, **columns):
    row = changed(row_id, **columns)
    return speed_rows.step_seconds(row, speed_jobs.request_of(row)["job"])


class AllRowsTest(unittest.TestCase):
    def test_every_row_is_estimated_or_refused_for_a_reason(self):
        todo, refusals = speed.collect(DATA)
        ids = [row.id for row, _, _ in todo]
        refused = {r["row"].id: r["reason"] for r in refusals}
        self.assertEqual(len(ids), len(set(ids)))
        self.assertFalse(set(ids) & set(refused))
        every = {row.id for rows in FILES.values() for row in rows}
        self.assertEqual(set(ids) | set(refused), every)
        self.assertTrue(all(refused.values()))

    def test_how_many_rows_become_jobs(self):
        todo, _ = speed.collect(DATA)
        counts = collections.Counter(speed_sets.sets_of(row)[0] for row, _, _ in todo)
        self.assertEqual(
            counts,
            {
                "nanotron, all": 1083,
                "vtrain_single_node": 928,
                "vtrain_multi_node": 70,
                "mosaicml": 140,
                "megatron_b200": 15,
                "bigscience": 81,
                "bigscience V100": 41,
                "torchtitan": 5,
                "papers": 34,
                "papers, micro-batch not stated": 13,
                "nemo": 22,
                "megatron_bridge": 69,
                "moe_folding": 13,
                "card": 16,
            },
        )

    def test_every_job_has_the_gpus_and_the_batch_of_its_row(self):
        todo, _ = speed.collect(DATA)
        for row, request, taken in todo:
            made = request["job"]
            self.assertEqual(speed_sets.gpu_count(made), row.number("num_gpus"), row.id)
            self.assertEqual(made["training"]["global_batch_size"], row.number("global_batch"))
            self.assertGreater(taken, 0)

    def test_out_of_memory_rows_are_jobs_of_the_same_choices(self):
        failed = {speed_sets.choice_of(q["job"]) for _, q in speed.collect_out_of_memory(DATA)}
        ran = {speed_sets.choice_of(q["job"]) for r, q, _ in speed.collect(DATA)[0] if r.family == "usp"}
        self.assertGreater(len(failed & ran), 20)


class FiguresOfARunTest(unittest.TestCase):
    def test_the_most_direct_figure_stands_for_a_run(self):
        rows = [
            measured.Row({"id": "a-1", "model": "m", "metric": "tflops_per_gpu", "value": "90"}),
            measured.Row({"id": "a-2", "model": "m", "metric": "step_s", "value": "2"}),
            measured.Row({"id": "a-3", "model": "other", "metric": "mfu", "value": "40"}),
            measured.Row({"id": "a-4", "model": "m", "metric": "step_s", "value": "3"}),
        ]
        kept, others = speed_rows.one_figure_each(rows)
        # a-4 is another run of the same kind, not another figure.
        self.assertEqual([row.id for row in kept], ["a-2", "a-3", "a-4"])
        self.assertEqual(others, {"a-1"})
        self.assertEqual(kept[0].text("tflops_per_gpu"), "90")

    def test_an_unknown_metric_stands_behind_those_that_are_known(self):
        rows = [
            measured.Row({"id": "a-1", "metric": "cost"}),
            measured.Row({"id": "a-2", "metric": "hfu"}),
        ]
        self.assertEqual(speed_rows.one_figure_each(rows)[1], {"a-1"})


class StepSecondsTest(unittest.TestCase):
    def test_tokens_per_second_of_one_gpu(self):
        self.assertAlmostEqual(seconds("usp-0001"), 256 * 4096 / (8 * 40149.94))

    def test_seconds(self):
        self.assertEqual(seconds("vtm-0001"), 3.5665)

    def test_llm_foundry_prints_the_tokens_per_second_of_all(self):
        self.assertAlmostEqual(seconds("llmf-0013"), 4096 * 2048 / 1083366)

    def test_teraflops_with_recomputation(self):
        """Narayanan et al. 2021, table 1: 142 TFLOP/s on 128 GPUs; eq. 3 by hand."""
        flops = 96 * 512 * 2048 * 36 * 4096**2 * (1 + 1 / 12 + 51200 / (16 * 36 * 4096))
        self.assertAlmostEqual(seconds("sc21-0003"), flops / (142e12 * 128))

    def test_utilization_without_recomputation(self):
        """Korthikanti et al. 2022, table 5: 530B, 42.1 % of 2,240 A100."""
        flops = 72 * 2240 * 2048 * 105 * 20480**2 * (1 + 1 / 60 + 51200 / (12 * 105 * 20480))
        self.assertAlmostEqual(seconds("kor-0019"), flops / (0.421 * 312e12 * 2240))

    def test_utilization_and_step_time_of_one_run_agree(self):
        """Korthikanti et al. 2022, table 5: 175B, 13.75 s, 51.4 %."""
        again = seconds("kor-0006", metric="mfu", value="51.4")
        self.assertAlmostEqual(again / 13.75, 1, delta=0.01)

    def test_figures_that_contradict_each_other(self):
        """A table's step time with a quarter of the FLOPs that its shape needs."""
        with self.assertRaisesRegex(measured.Refused, "are not of one run"):
            seconds("bsc-0075")
        self.assertEqual(seconds("bsc-0051"), 134.02)

    def test_what_no_formula_is_known_for(self):
        cases = (
            ({"metric": "tflops_per_gpu"}, "formula is not for"),
            ({"metric": "samples_per_s"}, "metric 'samples_per_s'"),
            ({"value": "n/a"}, "no measured value"),
            ({"value": "0"}, "no measured value"),
        )
        for columns, reason in cases:
            with self.assertRaisesRegex(measured.Refused, reason):
                seconds("usp-0001", **columns)
        with self.assertRaisesRegex(measured.Refused, "formula is not known"):
            seconds("vtm-0001", metric="tflops_per_gpu")
        with self.assertRaisesRegex(measured.Refused, "without a rate: 'RTX-4090'"):
            seconds("vtm-0001", metric="mfu", gpu="RTX-4090")


class JobsTest(unittest.TestCase):
    def test_nanotron_is_mapped_as_its_memory_is(self):
        made = job("usp-0007")
        self.assertEqual(made["runtime"], {"framework": "nanotron", "versions": {"nanotron": "0.5"}})
        self.assertEqual(made["cluster"], {"gpu": "h100-80gb-sxm"})
        self.assertEqual(made["parallelism"]["pipeline_parallel_size"], 2)
        self.assertTrue(made["model"]["transformer"]["tied_embeddings"])

    def test_vtrain(self):
        made = job("vtm-0001")
        self.assertEqual(made["model"]["transformer"]["vocab_size"], 51200)
        self.assertEqual(made["training"]["recompute"]["mode"], "full")
        self.assertEqual(made["training"]["precision"], {"preset": "fp16-mixed"})
        self.assertEqual(made["runtime"]["framework"], "megatron-deepspeed")

    def test_llm_foundry_shards_and_reduces_as_its_rows_say(self):
        made = job("llmf-0013")
        self.assertEqual(made["parallelism"]["zero_stage"], 3)
        self.assertEqual(made["training"]["precision"]["reduce_dtype"], "fp32")
        self.assertFalse(made["model"]["transformer"]["mlp_bias"])
        self.assertEqual(job("llmf-0585")["training"]["precision"]["reduce_dtype"], "bf16")

    def test_bigscience_deals_layers_and_knows_its_nodes(self):
        made = job("bsc-0051")
        self.assertEqual(made["parallelism"]["pipeline_layout"], [6] * 12)
        node = {"gpus_per_node": 8, "network_bytes_per_second": 6_250_000_000}
        self.assertEqual(made["cluster"], {"gpu": "a100-80gb-sxm", **node})
        self.assertEqual(job("bsv-0061")["cluster"]["gpus_per_node"], 4)
        self.assertEqual(job("bsv-0061")["model"]["transformer"]["hidden_size"], 8192)

    def test_bigscience_rows_without_layers_state_them_by_their_flops(self):
        """`NLAYERS` was tweaked for each PP: 80 of table rows called 200B."""
        self.assertEqual(KEPT["bsc-0001"].text("layers"), "")
        self.assertEqual(job("bsc-0001")["model"]["transformer"]["layer_count"], 80)
        with self.assertRaisesRegex(measured.Refused, "does not state layers"):
            job("bsc-0001", tflops_per_gpu="")
        with self.assertRaisesRegex(measured.Refused, "does not state layers"):
            job("bsc-0001", tflops_per_gpu="91.2")

    def test_megatron_on_b200(self):
        made = job("smx-0002")
        self.assertEqual(made["training"]["loss"], {"implementation": "te-cross-entropy"})
        self.assertEqual(made["model"]["transformer"]["layer_count"], 12)
        self.assertTrue(made["parallelism"]["sequence_parallel"])

    def test_experts_on_b200(self):
        made = job("smx-0008")
        self.assertEqual(made["parallelism"]["expert_parallel_size"], 4)
        self.assertEqual(made["parallelism"]["pipeline_parallel_size"], 2)
        self.assertEqual(made["model"]["transformer"]["dense_layer_count"], 1)

    def test_folded_experts(self):
        """Experts' matrices are split as attention's are, unless layouts are folded."""
        split, folded = (job(name)["parallelism"] for name in ("fold-0009", "fold-0010"))
        self.assertEqual(split["expert_tensor_parallel_size"], 2)
        self.assertEqual(folded["expert_tensor_parallel_size"], 1)
        fine = job("fold-0013")
        self.assertEqual(fine["model"]["transformer"]["expert_count"], 64)
        self.assertEqual(fine["parallelism"]["pipeline_parallel_size"], 1, "its table is blank there")
        with self.assertRaisesRegex(measured.Refused, "Megatron-FSDP"):
            job("fold-0002", pp="1")

    def test_utilization_by_megatrons_formula(self):
        """Mixtral 8x22B: 256 x 4096 tokens, 36.6 % of 128 H100."""
        attention = 2 * 6144**2 * (1 + 8 / 48) + 2 * 6144 * 4096
        weights = 56 * (attention + 3 * 6144 * 2 * 16384) + 6144 * 32768
        self.assertAlmostEqual(
            seconds("fold-0003"), 6 * 256 * 4096 * weights / (0.366 * 989e12 * 128)
        )

    def test_experts_of_megatron_bridge(self):
        made = job("mbs-0026")
        self.assertEqual(made["parallelism"]["expert_parallel_size"], 16)
        self.assertEqual(made["model"]["transformer"]["qk_norm"], "per-head")
        for name, reason in (
            ("mbs-0028", "layers of two micro-batches in turns"),
            ("mbr-0185", "experts with biases, or beside state-space layers"),
        ):
            with self.assertRaisesRegex(measured.Refused, reason):
                job(name)
        layout = job("mbr-0493")["parallelism"]["pipeline_layout"]
        self.assertEqual(layout, [4] * 15 + [1])
        moonlight = job("mbs-0014")["training"]
        self.assertEqual(moonlight["precision"]["optimizer_state_dtype"], "bf16")
        self.assertEqual(moonlight["recompute"]["modules"], ["up-projection", "mlp"])
        narrow = job("mbr-0105")["training"]["precision"]
        self.assertEqual(narrow["fp8_recipe"], "mxfp8")
        even = job("mbr-0019")["parallelism"]["pipeline_layout"]
        self.assertEqual(even, [3] + [4] * 22 + [3], "the embedding and the loss count as a layer each")

    def test_papers(self):
        self.assertEqual(job("sc21-0006")["parallelism"]["virtual_pipeline_size"], 3)
        self.assertEqual(job("sc21z-0002")["runtime"], {"framework": "deepspeed"})
        self.assertEqual(job("kor-0006")["training"]["recompute"]["modules"], ["core-attention"])
        self.assertEqual(job("kor-0005")["runtime"], speed_jobs.MEGATRON_LM)
        self.assertEqual(job("nem4-0001")["model"]["transformer"]["activation"], "relu2")
        self.assertEqual(job("fms-0001")["parallelism"]["shard_group_size"], 8)
        self.assertNotIn("shard_group_size", job("fms-0004")["parallelism"])
        self.assertEqual(job("gist-0002")["runtime"]["trainer"], "hf-trainer")

    def test_torchtune_adds_one_thing_after_another(self):
        packed, compiled, chunked = (job(f"tune-00{n}") for n in ("09", "10", "11"))
        self.assertEqual([j["runtime"]["compile"] for j in (packed, compiled, chunked)], [False, True, True])
        losses = [j["training"]["loss"]["implementation"] for j in (packed, compiled, chunked)]
        self.assertEqual(losses, ["plain", "plain", "chunked-cross-entropy"])

    def test_torchtitan(self):
        self.assertEqual(job("titan-0041")["training"]["recompute"]["interval"], 2)
        self.assertEqual(job("titan-0043")["training"]["recompute"]["mode"], "per-op")
        self.assertEqual(job("titan-0019")["parallelism"]["tensor_parallel_size"], 8)

    def test_a_micro_batch_that_is_not_stated_is_one_in_tables_that_never_state_it(self):
        self.assertEqual(job("mgs-0017")["training"]["micro_batch_size"], 1)
        with self.assertRaisesRegex(measured.Refused, "does not state micro_batch"):
            job("kor-0006", micro_batch="")

    def test_llama_3(self):
        """A row as the published table has them; this one is made up."""
        row = {"id": "lla3-1", "num_gpus": "8192", "tp": "8", "pp": "16", "dp": "64"}
        made = job("nem4-0001", **row, global_batch="2048", ffn="53248")
        self.assertTrue(made["model"]["transformer"]["gated_mlp"])
        self.assertEqual(made["training"]["micro_batch_size"], 1)


class Fp8Test(unittest.TestCase):
    def test_nemo_scales_by_the_values_before(self):
        made = job("nemo-0025")
        self.assertEqual(
            made["training"]["precision"], {"preset": "fp8-mixed", "fp8_recipe": "delayed"}
        )
        self.assertEqual(made["runtime"], {"framework": "megatron-core"})
        self.assertEqual(made["parallelism"]["zero_stage"], 1)

    def test_bridge_keeps_weights_in_fp8(self):
        precision = job("mbr-0155")["training"]["precision"]
        self.assertEqual(
            precision,
            {"preset": "fp8-mixed", "fp8_recipe": "mxfp8", "fp8_parameters": True},
        )
        plain = job("mbr-0155", precision="FP8-CS")["training"]["precision"]
        self.assertEqual(plain["fp8_recipe"], "tensorwise")

    def test_four_bits_have_one_recipe(self):
        precision = job("mbr-0155", precision="NVFP4")["training"]["precision"]
        self.assertEqual(precision, {"preset": "fp4-mixed"})

    def test_sixteen_bits_stay(self):
        precision = job("nemo-0025", precision="bf16")["training"]["precision"]
        self.assertEqual(precision, {"preset": "bf16-mixed"})

    def test_what_is_not_stated_is_refused(self):
        with self.assertRaisesRegex(measured.Refused, "does not state precision"):
            job("mbr-0155", precision="FP8 (precision not in table)")
        with self.assertRaisesRegex(measured.Refused, "Megatron-FSDP"):
            job("mbr-0153")


class RefusalsTest(unittest.TestCase):
    def test_what_is_not_modelled_is_refused(self):
        cases = (
            ("usp-0001", {"ep": "8"}, "experts"),
            ("usp-0001", {"model": "Mixtral-8x22B"}, "experts"),
            ("usp-0001", {"model": "Qwen3_30B_a3B"}, "experts"),
            ("usp-0001", {"precision": "MXFP8"}, "8-bit matrix products of others"),
            ("usp-0001", {"model": "LLAMA3_70B LoRA"}, "adapters"),
            ("gist-0001", {"notes": "optimizer offload True"}, "offload"),
            ("usp-0001", {"cp": "2"}, "context parallelism"),
            ("usp-0001", {"gpu": "Gaudi2"}, "no GPU id for 'Gaudi2'"),
            ("usp-0001", {"tp": ""}, "the row does not state tp"),
            ("usp-0001", {"dp": "4"}, "the source's degrees do not give its GPUs"),
            ("usp-0001", {"id": "new-1"}, "a source that no mapping is for"),
            ("vtm-0001", {"global_batch": "513"}, "no multiple of the micro-batches"),
            ("bsc-0051", {"zero_stage": "3"}, "DeepSpeed's ZeRO 2 and 3 under Megatron"),
            ("mgs-0017", {"notes": "framework MegaScale; a paper"}, "a modified model"),
            ("tune-0009", {"notes": "batch size 2"}, "the recipe is not stated"),
        )
        for row_id, columns, reason in cases:
            with self.subTest(row_id, **columns), self.assertRaisesRegex(measured.Refused, reason):
                job(row_id, **columns)


class SetsTest(unittest.TestCase):
    def test_sets(self):
        self.assertEqual(speed_sets.sets_of(KEPT["usp-0001"]), ["nanotron, all", "nanotron, cal=ok"])
        suspect = changed("usp-0001", notes="cal=suspect: degraded network")
        self.assertEqual(speed_sets.sets_of(suspect), ["nanotron, all"])
        self.assertEqual(speed_sets.sets_of(KEPT["kor-0006"]), ["papers"])

    def test_why_a_row_is_suspect(self):
        counts = collections.Counter(
            speed_sets.suspect_for(row) for row in KEPT.values() if row.family == "usp"
        )
        self.assertEqual(
            counts,
            {
                "": 344,
                "pipeline before its fix": 302,
                "slow network": 365,
                "pipeline with TP of 4 or more": 73,
            },
        )

    def test_features(self):
        features = speed_sets.features_of(KEPT["usp-0007"], job("usp-0007"))
        self.assertEqual(features["gpus"], "8")
        self.assertEqual(features["framework"], "nanotron")
        self.assertEqual(features["era"], "after_pp_fix=True")
        self.assertEqual(features["network"], "up to 512")
        self.assertEqual(features["micro-batch"], "4")

    def test_a_choice_is_among_runs_of_one_training(self):
        other = job("vtm-0003")
        self.assertEqual(speed_sets.choice_of(job("vtm-0001")), speed_sets.choice_of(other))
        other["training"]["global_batch_size"] *= 2
        self.assertNotEqual(speed_sets.choice_of(job("vtm-0001")), speed_sets.choice_of(other))


if __name__ == "__main__":
    unittest.main()
