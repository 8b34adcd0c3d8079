"""Tests of the mapping from measured rows to jobs and of the figures, on rows as text."""

import csv
import io
import json
import pathlib
import tempfile
import unittest

import accuracy
import bigscience
import figures
import measured
import megatron_ci
import nanotron
import verdicts

COLUMNS = (
    "id,model,params_b,hidden,layers,heads,kv_heads,ffn,vocab,gpu,framework,dp,tp,pp,cp,ep,"
    "sequence_parallel,zero_stage,precision,seq_len,micro_batch,grad_accum,recompute,"
    "measured_value,unit,what_is_measured,notes"
)
NANOTRON = (
    "uspalloc-0001,Llama-like 1.34B (nanotron),1.34,2048,16,32,32,8192,131072,H100 80GB,nanotron,"
    "8,1,1,1,,n/a,0,bf16,4096,2,16,none,25.07,GiB,model_states,"
    "grade=B; run 1.34G_dp8_tp1_pp1_acc16_mbs2_seq4096_zero0_tpmodeRED_vocab131k; job 14113488;"
    " tie_word_embeddings=True; after_pp_fix=True; Mem Res (GB)=50.18"
)
BIGSCIENCE = (
    "bsmeg-0013,GPT 64L-8192h,,8192,64,32,32,32768,50257 (padded 50688),V100 32GB,Megatron-LM,"
    "1,4,16,1,,no,0,fp16 (fp32 master),1024,4,256,full (checkpoint_num_layers 1),15492.85,MiB,"
    "allocated,grade=A; Megatron report_memory after 1 iterations; pipeline stage 5 of 16 (ranks"
    " 21..20); current allocated 15492.85 MB; params on this stage/TP rank 805560320;"
    " attention_dropout 0.1"
)
MEGATRON = (
    "mcore-0130,gpt3_mcore_te_tp1_pp4_resume_torch_dist_swiglu_1node (gpt),,512,12,8,8,2048,,GB200,"
    "Megatron-Core,1,1,4,1,,no,0,bf16,1024,4,8,none,2117.5,MiB,allocated,"
    "grade=B; golden dev_dgx_gb200 (last commit 93ebf8d72 2026-08-19); steady current allocated"
    " 710.6 MiB; first logged step peak 1900.5 MiB; vocab: GPT2 BPE 50257 padded; other args: "
    " --transformer-impl=transformer_engine --swiglu --no-gradient-accumulation-fusion"
    " --attention-softmax-in-fp32 --use-mcore-models --bf16"
)


# Rows of the sets that sets_test.py is about; a line of megatron_b200.csv is three.
OTHERS = 70 + 68 + 17 + 59 + 57 + 55 + 19 + 8 + 5 + 1 + 11 + 34 + 3 * 10


def row(text, **changes):
    """The row of a line, with columns replaced; `notes__more` adds to the notes."""
    (columns,) = csv.DictReader(io.StringIO(f"{COLUMNS}\n{text}\n"))
    columns["notes"] += changes.pop("notes__more", "")
    return measured.Row({**columns, **changes})


def moment(phase, first, peak, current=0):
    return {
        "phase": phase,
        "first_step": first,
        "peak_allocated_bytes": str(peak),
        "current_allocated_bytes": str(current),
        "peak_reserved_bytes": str(2 * peak),
    }


def rank(stage, allocated):
    gauge = {"expected_bytes": str(allocated), "bound_bytes": str(allocated * 2)}
    reserved = {"expected_bytes": str(allocated * 3), "bound_bytes": str(allocated * 4)}
    return {
        "pipeline_stage": str(stage),
        "layer_count": "4",
        "in_flight_count": "1",
        "parameter_count": "7",
        "peak_phase": "PHASE_LOSS",
        "allocated": gauge,
        "reserved": reserved,
        "moments": [
            moment("PHASE_FORWARD", True, 11),
            moment("PHASE_OPTIMIZER", True, 12, 5),
            moment("PHASE_END_OF_STEP", True, 5, 5),
            moment("PHASE_FORWARD", False, allocated),
            moment("PHASE_GRADIENT_REDUCTION", False, 60),
            moment("PHASE_OPTIMIZER", False, 50),
            moment("PHASE_END_OF_STEP", False, 9, 8),
        ],
    }


ANSWER = {"ranks": [rank(0, 100), rank(1, 200), rank(7, 400)]}


class ConstantsTest(unittest.TestCase):
    def test_the_table_is_printed(self):
        text = accuracy.constants()
        self.assertRegex(text, r"^constant +where +why")
        self.assertIn("server/catalog/calibration.yaml", text)


class RowTest(unittest.TestCase):
    def test_units(self):
        self.assertEqual(row(NANOTRON).measured_bytes(), 25.07 * 2**30)
        self.assertEqual(row(NANOTRON, unit="MB").measured_bytes(), 25.07 * 2**20)
        with self.assertRaisesRegex(measured.Refused, "unknown unit 'pages'"):
            row(NANOTRON, unit="pages").measured_bytes()

    def test_absent_columns_and_values(self):
        self.assertEqual(measured.Row({}).text("notes"), "")
        self.assertEqual(row(NANOTRON, kv_heads="").number("kv_heads", 4), 4)
        self.assertEqual(row(BIGSCIENCE).number("vocab"), 50257)
        with self.assertRaisesRegex(measured.Refused, "the row does not state ffn"):
            row(NANOTRON, ffn="").number("ffn")
        for value in ("", "n/a", "0"):
            with self.assertRaisesRegex(measured.Refused, "no measured value"):
                row(NANOTRON, measured_value=value).measured_bytes()

    def test_reads_a_folder_and_those_for_memory_and_oom(self):
        with tempfile.TemporaryDirectory() as folder:
            inner = pathlib.Path(folder, "memory")
            inner.mkdir()
            text = f"{COLUMNS}\n{NANOTRON}\n"
            pathlib.Path(folder, "a.csv").write_text(text, encoding="utf-8")
            (inner / "b.csv").write_text(text, encoding="utf-8")
            failed = pathlib.Path(folder, "oom")
            failed.mkdir()
            (failed / "c.csv").write_text(text, encoding="utf-8")
            files = measured.read_folder(folder)
        self.assertEqual([rows[0].id for rows in files.values()], ["uspalloc-0001"] * 3)
        self.assertEqual(list(files), ["a.csv", "memory/b.csv", "oom/c.csv"])

    def test_stage_of(self):
        stages = [measured.stage_of(ANSWER, s)["pipeline_stage"] for s in (0, 1, 3, 7, -1)]
        self.assertEqual(stages, ["0", "1", "1", "7", "7"])


class NanotronTest(unittest.TestCase):
    def test_request(self):
        job = nanotron.request_of(row(NANOTRON))["job"]
        self.assertEqual(job["training"]["global_batch_size"], 8 * 2 * 16)
        self.assertEqual(job["parallelism"]["zero_stage"], 0)
        self.assertNotIn("sequence_parallel", job["parallelism"])
        self.assertTrue(job["model"]["transformer"]["tied_embeddings"])
        self.assertEqual(job["cluster"], {"gpu": "h100-80gb-sxm"})

    def test_grouped_heads_are_named_by_the_run(self):
        notes = "grade=A; run 8.86G_dp1_tp8_pp1_gqa8; tie_word_embeddings=False"
        model = nanotron.request_of(row(NANOTRON, notes=notes))["job"]["model"]["transformer"]
        self.assertEqual(model["kv_head_count"], 8)
        self.assertFalse(model["tied_embeddings"])

    def test_tensor_parallel_runs_split_the_sequence(self):
        parallelism = nanotron.request_of(row(NANOTRON, tp="4"))["job"]["parallelism"]
        self.assertTrue(parallelism["sequence_parallel"])

    def test_the_pipeline_fix_is_an_era(self):
        for fixed, versions in (("True", {"nanotron": "0.5"}), ("False", {"nanotron": "0.4"})):
            job = nanotron.request_of(row(NANOTRON, notes=f"after_pp_fix={fixed}; x"))["job"]
            self.assertEqual(job["runtime"]["versions"], versions)
        self.assertNotIn("versions", nanotron.request_of(row(NANOTRON, notes=""))["job"]["runtime"])

    def test_allocated_is_the_peak_after_backward(self):
        prediction = nanotron.predict(row(NANOTRON), ANSWER)
        self.assertEqual((prediction.expected, prediction.bound), (60, 120))
        self.assertEqual(prediction.extra["predicted_first_step_peak"], 12)
        self.assertEqual(prediction.extra["predicted_end_of_step"], 8)

    def test_reserved_is_the_most_after_backward(self):
        prediction = nanotron.predict(row(NANOTRON, id="uspres-0001"), ANSWER)
        self.assertEqual((prediction.expected, prediction.bound), (120, 160))

    def test_sets(self):
        self.assertEqual(nanotron.sets_of(row(NANOTRON)), ["nanotron uspalloc"])
        single, split = row(NANOTRON, id="uspres-1"), row(NANOTRON, id="uspres-1", tp="2")
        self.assertEqual(
            nanotron.sets_of(single), ["nanotron uspres, TP=1", "nanotron uspres, all"]
        )
        self.assertEqual(nanotron.sets_of(split), ["nanotron uspres, all"])

    def test_refuses(self):
        for changes, reason in (
            ({"ffn": ""}, "the row does not state ffn"),
            ({"gpu": "H200"}, "no GPU id for 'H200'"),
            ({"cp": "2"}, "context parallelism"),
            ({"recompute": "full"}, "recomputation in nanotron"),
        ):
            with self.assertRaisesRegex(measured.Refused, reason):
                nanotron.request_of(row(NANOTRON, **changes))


class BigScienceTest(unittest.TestCase):
    def test_request(self):
        job = bigscience.request_of(row(BIGSCIENCE))["job"]
        self.assertEqual(job["training"]["global_batch_size"], 1024)
        self.assertEqual(job["model"]["transformer"]["vocab_size"], 50257)
        self.assertEqual(job["runtime"]["versions"], {"megatron-lm": "2.4"})

    def test_first_iteration_is_the_first_step(self):
        prediction = bigscience.predict(row(BIGSCIENCE), ANSWER)
        self.assertEqual((prediction.expected, prediction.bound), (12, 24))
        self.assertEqual(prediction.extra["measured_parameters"], "805560320")
        reserved = bigscience.predict(row(BIGSCIENCE, what_is_measured="reserved"), ANSWER)
        self.assertEqual(reserved.expected, 24)

    def test_later_iterations_are_the_gauge_of_the_stage(self):
        later = row(BIGSCIENCE, notes="after 20 iterations; pipeline stage 1 of 16 (ranks")
        prediction = bigscience.predict(later, ANSWER)
        self.assertEqual((prediction.expected, prediction.bound), (200, 400))
        self.assertEqual(prediction.extra["measured_end_of_step"], "")

    def test_refuses(self):
        for changes, reason in (
            ({"micro_batch": ""}, "the row does not state micro_batch"),
            ({"notes": "grade=A"}, "the row does not name its pipeline stage"),
            ({"framework": "Trax"}, "framework 'Trax'"),
            ({"recompute": "none"}, "without full recomputation"),
            ({"what_is_measured": "device"}, "what is measured: 'device'"),
        ):
            with self.assertRaisesRegex(measured.Refused, reason):
                bigscience.request_of(row(BIGSCIENCE, **changes))


class MegatronCiTest(unittest.TestCase):
    def job(self, more="", **changes):
        changed = row(MEGATRON, notes__more=more, **changes)
        return megatron_ci.request_of(changed)["job"]

    def refusal(self, more="", **changes):
        with self.assertRaises(measured.Refused) as caught:
            self.job(more, **changes)
        return str(caught.exception)

    def test_arguments(self):
        notes = "vocab: given; other args:  --a=1 --b --c=[x y] --d 2.5 --e-f=([0]*3+[1]*2)"
        expected = {"a": "1", "b": True, "c": "[x y]", "d": "2.5", "e-f": "([0]*3+[1]*2)"}
        self.assertEqual(megatron_ci.arguments(measured.Row({"notes": notes})), expected)
        self.assertEqual(megatron_ci.arguments(measured.Row({"notes": "grade=A"})), {})

    def test_transformer(self):
        model = self.job()["model"]["transformer"]
        self.assertEqual(model["ffn_size"], 1344)  # the column says 4 x 512
        self.assertEqual(model["activation"], "silu")
        self.assertEqual(model["norm"], "layer-norm")
        self.assertTrue(model["qkv_bias"] and model["tied_embeddings"])
        self.assertEqual((model["position_embedding"], model["position_count"]), ("learned", 1024))
        self.assertEqual((model["hidden_dropout"], model["attention_dropout"]), (0.1, 0.1))
        self.assertEqual(model["vocab_size"], 50257)

    def test_transformer_of_other_arguments(self):
        model = self.job(
            " --position-embedding-type=rope --disable-bias-linear --normalization=RMSNorm"
            " --untie-embeddings-and-output-weights --group-query-attention --num-query-groups=2"
            " --kv-channels=128 --hidden-dropout=0.0 --ffn-hidden-size=8192 --qk-layernorm"
            " --tokenizer-type=NullTokenizer --vocab-size=131073"
        )["model"]["transformer"]
        self.assertEqual((model["kv_head_count"], model["head_size"]), (2, 128))
        self.assertEqual((model["norm"], model["qk_norm"]), ("rms-norm", "per-head"))
        self.assertFalse(model["qkv_bias"] or model["mlp_bias"] or model["tied_embeddings"])
        self.assertEqual((model["hidden_dropout"], model["attention_dropout"]), (0.0, 0.1))
        self.assertEqual((model["ffn_size"], model["vocab_size"]), (8192, 131074))
        self.assertNotIn("position_count", model)

    def test_attention_of_auto_depends_on_the_image(self):
        golden = "golden {} (last commit 93ebf8d72 {}); other args: --bf16"
        for image, date, gpu, kernel in (
            ("lts_dgx_a100", "2025-10-21", "A100", "eager"),
            ("lts_dgx_a100", "2026-08-19", "A100", "flash"),
            ("lts", "2025-11-06", "", "flash"),
            ("dev_dgx_h100", "2026-08-19", "", "cudnn"),
            ("dev_dgx_gb200", "2026-08-19", "GB200", "flash"),
        ):
            job = self.job(gpu=gpu, notes=golden.format(image, date))
            self.assertEqual(job["training"]["attention"], kernel)
        reshard = "gpt3_mcore_te_tp2_pp2_resume_torch_dist_reshard_1x4xNone (gpt)"
        job = self.job(model=reshard, notes=golden.format("lts_dgx_a100", "2025-10-21"))
        self.assertEqual(job["training"]["attention"], "flash")
        self.assertNotIn("cublas_workspace_config", job["runtime"])

    def test_attention_that_is_named(self):
        for backend, kernel in (("unfused", "eager"), ("flash", "flash"), ("fused", "cudnn")):
            job = self.job(f" --attention-backend={backend}")
            self.assertEqual(job["training"]["attention"], kernel)
        local = self.job(notes="other args: --transformer-impl=local --bf16")
        self.assertEqual(local["training"]["attention"], "eager")
        self.assertEqual(local["runtime"]["transformer_implementation"], "local")

    def test_runtime(self):
        runtime = self.job()["runtime"]
        self.assertFalse(runtime["gradient_accumulation_fusion"])
        self.assertTrue(runtime["attention_mask"])
        self.assertEqual(runtime["cublas_workspace_config"], ":4096:8")
        more = " --no-create-attention-mask-in-dataloader --make-vocab-size-divisible-by=64"
        self.assertFalse(self.job(more)["runtime"]["attention_mask"])
        self.assertEqual(self.job(more)["runtime"]["vocab_size_divisor"], 64)

    def test_parallelism(self):
        more = " --use-distributed-optimizer --num-distributed-optimizer-instances=2"
        split = self.job(more + " --sequence-parallel", dp="4")["parallelism"]
        self.assertEqual((split["zero_stage"], split["shard_group_size"]), (1, 2))
        self.assertFalse(split["sequence_parallel"])  # of no use at TP 1
        split = self.job(" --sequence-parallel", tp="2")["parallelism"]
        self.assertTrue(split["sequence_parallel"])

    def test_fp8(self):
        more = " --bf16 --fp8-format=hybrid --fp8-recipe=tensorwise --fp8-param-gather"
        precision = {"preset": "fp8-mixed", "fp8_recipe": "tensorwise", "fp8_parameters": True}
        self.assertEqual(self.job(more)["training"]["precision"], precision)
        plain = {"preset": "fp8-mixed", "fp8_recipe": "delayed", "fp8_parameters": False}
        self.assertEqual(self.job(" --fp8-format=hybrid")["training"]["precision"], plain)
        self.assertEqual(megatron_ci.sets_of(row(MEGATRON, notes__more=more)), ["megatron_ci special"])

    def test_one_token_further(self):
        more = " --mtp-num-layers=1 --mtp-loss-scaling-factor=0.1"
        self.assertEqual(self.job(more)["training"]["mtp_layer_count"], 1)
        self.assertEqual(self.job()["training"]["mtp_layer_count"], 0)
        self.assertEqual(megatron_ci.sets_of(row(MEGATRON, notes__more=more)), ["megatron_ci special"])

    def test_virtual_stages(self):
        for more, chunks in (
            (" --num-layers-per-virtual-pipeline-stage=1", 3),
            (" --num-virtual-stages-per-pipeline-rank=2", 2),
        ):
            split = self.job(more)["parallelism"]
            self.assertEqual(split["virtual_pipeline_size"], chunks)
            self.assertEqual(split["pipeline_schedule"], "interleaved-1f1b")

    def test_uneven_stages(self):
        ends = " --decoder-first-pipeline-num-layers=2 --decoder-last-pipeline-num-layers=2"
        both = " --account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
        for more, layers, layout in (
            (ends, "12", [2, 4, 4, 2]),
            (" --decoder-last-pipeline-num-layers=1", "13", [4, 4, 4, 1]),
            (both, "6", [1, 2, 2, 1]),
        ):
            split = self.job(more, layers=layers)["parallelism"]
            self.assertEqual(split["pipeline_layout"], layout)

    def test_recompute(self):
        full = " --recompute-granularity=full --recompute-method=uniform --recompute-num-layers=2"
        self.assertEqual(
            self.job(full)["training"]["recompute"], {"mode": "full", "unit_layer_count": 2}
        )
        some = " --recompute-granularity=selective --recompute-modules=[layernorm mlp]"
        self.assertEqual(
            self.job(some)["training"]["recompute"],
            {"mode": "selective", "modules": ["norm", "mlp"]},
        )
        block = " --recompute-granularity=full --recompute-method=block"
        self.assertIn("first layers of each stage", self.refusal(block))

    def test_bert(self):
        model = self.job(model="bert_mcore_tp1_pp2 (bert)")["model"]["transformer"]
        self.assertEqual(model["vocab_size"], 30522)
        self.assertEqual((model["token_type_count"], model["masked_lm_head"]), (2, True))
        self.assertTrue(model["sentence_head"])
        older = "golden lts_dgx_a100 (last commit adc69dba2 2025-10-21); other args: --bf16"
        model = self.job(model="bert_mcore_tp1_pp2 (bert)", notes=older)["model"]["transformer"]
        self.assertEqual(model["vocab_size"], 28996)

    def test_loss(self):
        self.assertEqual(self.job()["training"]["loss"], {"implementation": "plain"})
        fused = self.job(notes="other args: --cross-entropy-loss-fusion --bf16")
        self.assertEqual(fused["training"]["loss"], {"implementation": "fused-cross-entropy"})

    def test_precision(self):
        half = self.job(notes="other args: --fp16", precision="fp16")
        self.assertEqual(half["training"]["precision"], {"preset": "fp16-mixed"})
        self.assertEqual(
            self.job()["training"]["precision"],
            {"preset": "bf16-mixed", "gradient_accumulation_dtype": "fp32"},
        )

    def test_gradients_that_wait(self):
        more = " --defer-embedding-wgrad-compute --wgrad-deferral-limit={}"
        for limit, count in ((2, 2), (0, 8)):
            runtime = self.job(more.format(limit))["runtime"]
            self.assertEqual(runtime["deferred_embedding_gradient_count"], count)
        self.assertNotIn("deferred_embedding_gradient_count", self.job()["runtime"])

    def test_groups_of_micro_batches_follow_from_the_test(self):
        tunable = "gpt3_mcore_te_tp1_pp4_vp1_resume_torch_dist_tunable_overlap (gpt)"
        self.assertEqual(self.job(model=tunable)["parallelism"]["micro_batch_group_size"], 5)
        self.assertNotIn("micro_batch_group_size", self.job()["parallelism"])

    def test_torch_follows_the_image(self):
        golden = "golden dev_dgx_gb200 (last commit {}); other args: --bf16"
        fusion = "gpt3_mcore_te_tp2_pp2_cross_entropy_loss_fusion{} (gpt)"
        for test, commit, torch in (
            ("", "4e85d74ae 2026-04-14", "2.11"),
            ("", "93ebf8d72 2026-08-19", "2.12"),
            ("_1node", "93ebf8d72 2026-08-19", "2.11"),
        ):
            job = self.job(model=fusion.format(test), notes=golden.format(commit))
            self.assertEqual(job["runtime"]["versions"], {"torch": torch})
        moved = "golden {} (last commit adc69dba2 2025-10-21); other args: --cross-entropy-loss-fusion"
        for image, torch in (("dev_dgx_a100", "2.5"), ("lts_dgxa100_ord", "2.2")):
            self.assertEqual(self.job(notes=moved.format(image))["runtime"]["versions"], {"torch": torch})
        self.assertNotIn("versions", self.job()["runtime"])

    def test_the_second_run_of_a_test_is_resumed(self):
        golden = "golden {}_2nd (last commit 4e85d74ae {}); other args: --bf16"
        for image, date, torch in (
            ("lts_dgx_a100", "2026-04-14", "2.9"),
            ("dev_dgx_h100", "2026-01-13", "2.9"),
            ("dev_dgx_h100", "2026-01-15", "2.10"),
            ("dev_dgx_gb200", "2026-04-14", "2.11"),
            ("dev_dgx_gb200", "2026-05-29", "2.12"),
        ):
            job = self.job(notes=golden.format(image, date))
            self.assertTrue(job["training"]["resumed_from_checkpoint"])
            self.assertEqual(job["runtime"]["versions"], {"torch": torch})
        self.assertNotIn("resumed_from_checkpoint", self.job()["training"])

    def test_cores_of_moved_values(self):
        experts = " --num-experts=8 --moe-router-topk=2"
        moved = "golden lts_dgx_a100 (last commit adc69dba2 2025-10-21)"
        for test, core in (
            ("gpt3_mcore_te_tp2_pp1_te_8experts2parallel_top2router (moe)", "0.12"),
            ("gpt3_mcore_te_tp2_pp1_te_8experts2parallel_groupedGEMM (moe)", "0.14"),
        ):
            changed = row(MEGATRON, notes__more=experts, model=test)
            columns = changed.columns()
            columns["notes"] = moved + columns["notes"][columns["notes"].index("; ") :]
            asked = megatron_ci.request_of(measured.Row(columns))["job"]
            self.assertEqual(asked["runtime"]["versions"]["megatron-core"], core, test)
        self.assertNotIn("versions", self.job(experts)["runtime"])

    def test_contexts(self):
        split = self.job(" --cp-comm-type=all_gather", cp="2", dp="4")["parallelism"]
        self.assertEqual(split["context_parallel_size"], 2)
        self.assertEqual(split["context_parallel_method"], "all-gather")
        split = self.job(" --num-distributed-optimizer-instances=2", cp="2", dp="4")["parallelism"]
        self.assertEqual(split["context_parallel_method"], "ring")
        self.assertEqual(split["shard_group_size"], 4, "of 2 x 4 ranks")
        self.assertNotIn("context_parallel_size", self.job()["parallelism"])

    def test_refuses(self):
        for more, changes, reason in (
            (
                " --num-experts=8 --moe-router-topk=1 --overlap-moe-expert-parallel-comm",
                {},
                "layers of two micro-batches in turns",
            ),
            (" --optimizer=soap", {}, "optimizer soap"),
            (
                " --cross-entropy-loss-fusion --cross-entropy-fusion-impl=te",
                {},
                "Transformer Engine's cross entropy",
            ),
            (" --quantum-attention=7", {}, "argument not judged yet: --quantum-attention"),
            (" --cp-comm-type=a2a+p2p", {"cp": "4"}, "context parallelism by a2a+p2p"),
            ("", {"gpu": "B300"}, "no GPU id for 'B300'"),
            ("", {"framework": "Megatron-Core + Megatron-FSDP"}, "Megatron-FSDP without its flag"),
            (" --use-megatron-fsdp --fp8-format=e4m3", {}, "fp8 under Megatron-FSDP"),
        ):
            self.assertIn(reason, self.refusal(more, **changes))

    def test_experts(self):
        more = " --num-experts=8 --moe-router-topk=2 --moe-ffn-hidden-size=1024"
        job = self.job(more, ep="4")
        shape = job["model"]["transformer"]
        self.assertEqual((shape["expert_count"], shape["active_expert_count"]), (8, 2))
        self.assertEqual(shape["expert_ffn_size"], 1024)
        self.assertNotIn("shared_expert_ffn_size", shape)
        self.assertEqual(job["parallelism"]["expert_parallel_size"], 4)
        self.assertEqual(job["parallelism"]["token_dispatcher"], "all-gather")
        self.assertNotIn("expert_tensor_parallel_size", job["parallelism"])
        self.assertIs(job["runtime"]["grouped_gemm"], False)
        self.assertIs(job["runtime"]["deterministic"], True)

    def test_experts_of_their_own_kind(self):
        more = (
            " --num-experts=8 --moe-router-topk=2 --moe-token-dispatcher-type=alltoall --bf16"
            " --moe-shared-expert-intermediate-size=512 --expert-tensor-parallel-size=1"
            " --moe-grouped-gemm --moe-router-dtype=fp32"
        )
        job = self.job(more, ep="2")
        self.assertEqual(job["model"]["transformer"]["shared_expert_ffn_size"], 512)
        self.assertEqual(job["parallelism"]["token_dispatcher"], "all-to-all")
        self.assertEqual(job["parallelism"]["expert_tensor_parallel_size"], 1)
        self.assertEqual(job["training"]["precision"]["router_dtype"], "fp32")
        self.assertIs(job["runtime"]["grouped_gemm"], True)

    def test_latent_attention(self):
        more = (
            " --multi-latent-attention --q-lora-rank=192 --kv-lora-rank=64 --qk-head-dim=16"
            " --qk-pos-emb-head-dim=8 --v-head-dim=16 --kv-channels=128 --qk-layernorm"
        )
        shape = self.job(more)["model"]["transformer"]
        self.assertEqual((shape["query_rank"], shape["key_value_rank"]), (192, 64))
        self.assertEqual((shape["head_size"], shape["rotary_head_size"]), (24, 8))
        self.assertEqual((shape["value_head_size"], shape["qk_norm"]), (16, "per-rank"))
        self.assertIs(shape["qkv_bias"], False)
        shape = self.job(" --multi-latent-attention")["model"]["transformer"]
        self.assertEqual((shape["key_value_rank"], shape["head_size"]), (32, 192))
        self.assertNotIn("query_rank", shape)

    def test_cores_of_moved_latent_attention(self):
        changed = row(MEGATRON, notes__more=" --multi-latent-attention")
        columns = changed.columns()
        moved = "golden dev_dgx_a100 (last commit adc69dba2 2025-10-21)"
        columns["notes"] = moved + columns["notes"][columns["notes"].index("; ") :]
        asked = megatron_ci.request_of(measured.Row(columns))["job"]
        self.assertEqual(asked["runtime"]["versions"]["megatron-core"], "0.12")

    def test_sets(self):
        for more, name in (("", "dense"), (" --num-experts=8", "experts")):
            sets = megatron_ci.sets_of(row(MEGATRON, notes__more=more))
            self.assertEqual(sets, [f"megatron_ci {name}"])
        both = row(MEGATRON, notes__more=" --num-experts=8 --fp8-format=hybrid")
        self.assertEqual(megatron_ci.sets_of(both), ["megatron_ci special"])

    def test_predicts_the_last_stage(self):
        prediction = megatron_ci.predict(row(MEGATRON), ANSWER)
        self.assertEqual((prediction.expected, prediction.bound), (400, 800))
        self.assertEqual(prediction.extra["measured_first_step_peak"], round(1900.5 * 2**20))

    def test_every_committed_row_has_arguments_that_are_judged(self):
        rows = measured.read_folder(accuracy.HERE / "data")["megatron_ci.csv"]
        asked = [r for r in rows if megatron_ci.sets_of(r) != ["megatron_ci special"]]
        known = megatron_ci.MAPPED | megatron_ci.HARMLESS | set(megatron_ci.REFUSED)
        context = {"cp-comm-type", "hierarchical-context-parallel-sizes"}
        seen = {name for r in asked for name in megatron_ci.arguments(r)}
        self.assertEqual(seen - known - context, set())


class RunnerTest(unittest.TestCase):
    def test_every_row_is_estimated_or_refused(self):
        todo, refusals, setless = accuracy.collect(accuracy.HERE / "data", None)
        ids = {r.id for r, _, _ in todo} | {refusal["id"] for refusal in refusals}
        self.assertEqual(len(ids), 2200 + 85 + 410 + OTHERS + 1376 + 768 + 1 + 78 + 90 + 60 + 200 + 84 + 180
                         + 122 + 90 + 96 + 112 + 120 + 42 + 12 + 236 + 162
                         + 142 + 48 + 48 + 46 + 80 + 24 + 36 + 62 + 72 + 42 + 64 + 60)
        self.assertEqual(setless, {})

    def test_snake_case(self):
        self.assertEqual(
            accuracy.snake({"ranks": [{"pipelineStage": "0", "peak_phase": "A"}]}),
            {"ranks": [{"pipeline_stage": "0", "peak_phase": "A"}]},
        )

    def test_refusals_of_the_program_are_grouped(self):
        text = "job.training.micro_batch_size: 0; at least 1"
        expected = "plimsoll: job.training.micro_batch_size: N; at least N"
        self.assertEqual(accuracy.error_reason({"error": text}), expected)
        status = {"code": 3, "message": f"{text}\n{text}", "details": []}
        twice = f"{expected} / {expected[10:]}"
        self.assertEqual(accuracy.error_reason({"error": status}), twice)

    def test_judge(self):
        usable, refused = row(NANOTRON), row(NANOTRON, id="uspres-0001")
        todo = [(usable, nanotron, {}), (refused, nanotron, {})]
        results, judged, refusals = accuracy.judge(todo, [ANSWER, {"error": "no"}])
        self.assertEqual([r["predicted"] for r in results], [60])
        self.assertEqual(judged, [], "allocated rows are of the same runs as reserved ones")
        sets = ["nanotron uspres, TP=1", "nanotron uspres, all", "nanotron"]
        self.assertEqual([refusal["set"] for refusal in refusals], sets)
        self.assertEqual([refusal["of"] for refusal in refusals], ["figures"] * 2 + ["verdicts"])
        self.assertEqual({refusal["reason"] for refusal in refusals}, {"plimsoll: no"})


    def test_judges_the_verdict_of_what_worked_and_of_what_failed(self):
        worked = row(NANOTRON, id="uspres-0001")
        failed = row(NANOTRON, id="uspoom-0001", what_is_measured="OOM", measured_value="", unit="")
        answers = [{**ANSWER, "verdict": "VERDICT_FITS"}, {**ANSWER, "verdict": "VERDICT_AT_RISK"}]
        results, judged, _ = accuracy.judge([(worked, nanotron, {}), (failed, nanotron, {})], answers)
        self.assertEqual({r["id"] for r in results}, {"uspres-0001"})
        self.assertEqual(
            [(one["set"], one["outcome"], one["verdict"]) for one in judged],
            [("nanotron", "worked", "FITS"), ("nanotron", "out of memory", "AT_RISK")],
        )


class VerdictsTest(unittest.TestCase):
    def matrices(self, worked, failed):
        judged = [
            {"set": "s", "outcome": kind, "verdict": verdict, "features": {"tp": tp}}
            for kind, names in (("worked", worked), ("out of memory", failed))
            for tp, verdict in enumerate(names)
        ]
        return verdicts.summarize(judged, [{"set": "s", "outcome": "worked", "reason": "why"}])

    def test_matrix(self):
        matrix = self.matrices(["FITS", "FITS", "AT_RISK", "DOES_NOT_FIT"], ["AT_RISK"])["s"]
        self.assertEqual(matrix["worked"]["rows"], 4)
        self.assertEqual(matrix["worked"]["FITS"]["share"], 50)
        self.assertEqual(matrix["worked"]["FITS"]["interval"], [15.0, 85.0])
        self.assertEqual(matrix["out of memory"]["FITS"]["rows"], 0)
        self.assertEqual(matrix["refused"], {"worked: why": 1})

    def test_table(self):
        text = verdicts.markdown(self.matrices(["FITS"], ["AT_RISK"]))
        self.assertIn("| s | ran out of memory | 1 | 0.0 % (0.0–79.3) | 100.0 % (20.6–100.0) |", text)
        self.assertIn("* verdict on s, worked: why (1)", text)
        self.assertEqual(verdicts.markdown({}), "")

    def test_check(self):
        committed = self.matrices(["FITS", "AT_RISK"], ["AT_RISK", "AT_RISK"])
        check = lambda *now: verdicts.regressions(self.matrices(*now), committed)
        self.assertEqual(check(["FITS", "DOES_NOT_FIT"], ["AT_RISK", "DOES_NOT_FIT"]), [])
        self.assertEqual(
            check(["AT_RISK", "AT_RISK"], ["FITS", "AT_RISK"]),
            [
                "verdict on s, worked: FITS 0.0 %, committed 50.0 %",
                "verdict on s, out of memory: FITS 50.0 %, committed 0.0 %",
            ],
        )
        fewer = check(["FITS"], ["AT_RISK", "AT_RISK"])
        self.assertEqual(fewer, ["verdict on s, worked: rows 1, committed 2"])
        self.assertEqual(verdicts.regressions(committed, {}), ["verdict on s: not committed"])


class FiguresTest(unittest.TestCase):
    def result(self, number, predicted):
        return {
            "set": "s",
            "id": f"r-{number}",
            "measured": 100,
            "predicted": predicted,
            "bound": predicted * 1.1,
            "features": {"even": str(number % 2 == 0)},
        }

    def figures(self, *predicted):
        results = [self.result(i, p) for i, p in enumerate(predicted)]
        return figures.summarize_sets(results, [{"set": "s", "id": "r-9", "reason": "why"}])

    def test_percentile(self):
        self.assertEqual(figures.percentile([3, 1, 2], 0.5), 2)
        self.assertAlmostEqual(figures.percentile([0, 10], 0.9), 9)
        self.assertEqual(figures.percentile([7], 0.95), 7)

    def test_wilson(self):
        low, high = figures.wilson(10, 10)
        self.assertAlmostEqual(low, 0.7225, places=4)
        self.assertAlmostEqual(high, 1)

    def test_summary(self):
        found = self.figures(99, 102, 80)["s"]
        self.assertEqual((found["rows"], found["estimated"], found["refused"]), (4, 3, 1))
        self.assertEqual((found["median"], found["worst"], found["worst_id"]), (2, -20, "r-2"))
        self.assertEqual(found["bias"], -6.33)
        self.assertEqual(found["under_bound"], 66.67)
        self.assertEqual(found["reasons"], {"why": 1})

    def test_features_that_vary(self):
        lines = figures.by_feature([self.result(0, 101), self.result(1, 99), self.result(2, 103)])
        self.assertEqual(lines[0], ("s", "even", "False", 1, 1, 1, -1))
        self.assertEqual(lines[1][3:5], (2, 2))

    def test_markdown_goes_between_the_markers(self):
        table = figures.markdown(self.figures(99, 101))
        self.assertIn("| s | 3 | 1 | 1.00 % |", table)
        self.assertIn("* s: why (1)", table)
        page = f"# Title\n{figures.BEGIN}\nold\n{figures.END}\nrest\n"
        written = figures.write_between_markers(page, table)
        self.assertEqual(written, f"# Title\n{figures.BEGIN}\n{table}{figures.END}\nrest\n")
        with self.assertRaises(ValueError):
            figures.write_between_markers("# Title\n", table)

    def test_check(self):
        committed = json.loads(json.dumps(self.figures(99, 102)))
        self.assertEqual(figures.regressions(self.figures(99, 102), committed), [])
        self.assertEqual(figures.regressions(self.figures(100, 101), committed), [])
        worse = "\n".join(figures.regressions(self.figures(99, 103), committed))
        self.assertIn("s: median 2.0 %, committed 1.5 %", worse)
        self.assertIn("s: worst 3.0 %, committed 2.0 %", worse)
        fewer = figures.regressions(self.figures(99), committed)
        self.assertIn("s: estimated 1, committed 2", fewer)
        self.assertEqual(figures.regressions({}, committed), ["s: the set is gone"])
        self.assertEqual(figures.regressions(committed, {}), ["s: not committed"])

    def test_check_of_the_bound(self):
        committed = self.figures(99, 102)
        committed["s"]["under_bound"] = 100.0
        low = self.figures(99, 102)
        low["s"]["under_bound"] = 50.0
        expected = ["s: under the bound 50.0 %, committed 100.0 %"]
        self.assertEqual(figures.regressions(low, committed), expected)


if __name__ == "__main__":
    unittest.main()
