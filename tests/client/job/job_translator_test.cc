// What people write of a job, and the same job in the API's names.
#include "server/words/job_translator.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/job/job_file.h"
#include "estimator/job/fields.h"

namespace plimsoll {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Settings = std::vector<JobSetting>;

// A job as it was read: the job, what is wrong, and what was read otherwise.
struct Outcome {
  v1::Job job;
  std::vector<std::string> wrong;
  std::vector<std::string> read_as;  // as "training.sequence_length 8192, written as 8k"
};

class JobTranslatorTest : public testing::Test {
 protected:
  JobTranslatorTest() {
    std::string folder = (std::filesystem::temp_directory_path() / "plimsoll-XXXXXX").string();
    folder_ = mkdtemp(folder.data());
  }
  ~JobTranslatorTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& text, const std::string& name = "job.yaml") {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  Outcome Read(const std::string& text, const Settings& settings = {}) {
    Outcome reading;
    std::vector<v1::Assumption> notes;
    Violations misread;
    const auto job = ReadJob(text.empty() ? "" : Write(text), settings, &misread, &notes);
    for (const Violation& violation : misread) {
      reading.wrong.push_back(ToText(violation));
      EXPECT_NE(violation.code, ViolationCode::kInvalidValue) << ToText(violation);
    }
    if (!job.ok()) {
      reading.wrong.emplace_back(job.status().message());
      return reading;
    }
    reading.job = *job;
    for (const v1::Assumption& note : notes) {
      reading.read_as.push_back(
          absl::StrCat(note.field().substr(4), " ", note.value(), ", ", note.reason()));
    }
    return reading;
  }

  std::string folder_;
};

struct Same {
  const char* name;
  const char* written;
  const char* own;  // the same in the API's names
};

const Same kSame[] = {
    {"shorthands",
     "{model: llama-3.1-8b, training: {precision: bf16-pure, optimizer: lion, recompute: full, "
     "loss: chunked}}",
     "{model: {name: llama-3.1-8b}, training: {precision: {preset: bf16-pure}, optimizer: {name: "
     "lion}, recompute: {mode: full}, loss: {implementation: chunked}}}"},
    {"names of flags, at the top",
     "{model: gpt2, sequence_length: 1024, zero_stage: 3, gpu: h100, gpu-count: 8, precision: "
     "fp32}",
     "{model: {name: gpt2}, training: {sequence_length: 1024, precision: {preset: fp32}}, "
     "parallelism: {zero_stage: 3}, cluster: {gpu: h100, gpu_count: 8}}"},
    {"a section of a flag's", "{optimizer: {name: lion, implementation: foreach}}",
     "{training: {optimizer: {name: lion, implementation: foreach}}}"},
    {"a hub's id", "model: meta-llama/Llama-3.1-8B", "model: {name: meta-llama/Llama-3.1-8B}"},
    {"sizes", "{seq_len: 8k, gpu_memory: 80GiB, training: {micro_batch_size: 1}}",
     "{training: {sequence_length: 8192, micro_batch_size: 1}, cluster: {gpu_memory_bytes: "
     "85899345920}}"},
    {"sizes in their own fields",
     "{training: {sequence_length: 128K}, cluster: {interconnectBytesPerSecond: 450GB/s}}",
     "{training: {sequence_length: 131072}, cluster: {interconnect_bytes_per_second: "
     "450000000000}}"},
    {"Hugging Face",
     "{model_name_or_path: gpt2, per_device_train_batch_size: 4, gradient_checkpointing: true, "
     "optim: adamw_torch_fused, max_length: 2048, attn_implementation: flash_attention_2}",
     "{model: {name: gpt2}, training: {micro_batch_size: 4, recompute: {mode: full}, optimizer: "
     "{name: adamw, implementation: fused}, sequence_length: 2048, attention: flash}}"},
    {"bitsandbytes, paged, in backward", "{optim: paged_adamw_8bit, optimizer_in_bwd: true}",
     "{training: {optimizer: {name: adamw-8bit, paged: true, in_backward: true}}}"},
    {"projected gradients", "{optim: apollo_adamw, optim_target_modules: [attn, mlp]}",
     "{training: {optimizer: {name: apollo-adamw, target_modules: [attention, mlp]}}}"},
    {"signs", "{optimizer: {type: OneBitAdam}}", "{training: {optimizer: {name: onebit-adam}}}"},
    {"Megatron",
     "{seq-length: 4096, tensor-model-parallel-size: 4, pipeline-model-parallel-size: 2, "
     "use-distributed-optimizer: true, bf16: true, recompute-granularity: selective, "
     "recompute-modules: [core_attn, mlp], framework: mcore}",
     "{training: {sequence_length: 4096, precision: {preset: bf16-mixed}, recompute: {mode: "
     "selective, modules: [core-attention, mlp]}}, parallelism: {tensor_parallel_size: 4, "
     "pipeline_parallel_size: 2, zero_stage: 1}, runtime: {framework: megatron-core}}"},
    {"DeepSpeed",
     "{zero_optimization: {stage: 2, reduce_bucket_size: 2e8, overlap_comm: true}, bf16: {enabled: "
     "true}, train_micro_batch_size_per_gpu: 2, optimizer: {type: AdamW}}",
     "{parallelism: {zero_stage: 2}, runtime: {framework: deepspeed, reduce_bucket_element_count: "
     "200000000, overlap_communication: true}, training: {precision: {preset: bf16-mixed}, "
     "micro_batch_size: "
     "2, optimizer: {name: adamw}}}"},
    {"DeepSpeed's offload",
     "{zero_optimization: {stage: 3, offload_optimizer: {device: cpu, pin_memory: true}, "
     "offload_param: {device: none}}}",
     "{parallelism: {zero_stage: 3}, runtime: {framework: deepspeed, offload_optimizer: true}}"},
    {"accelerate's offload", "{offload_optimizer_device: cpu, offload_param_device: cpu}",
     "{runtime: {offload_optimizer: true, offload_parameters: true}}"},
    {"short words", "{tp: 2, pp: 4, dp: 2, mbs: 1, gbs: 32, zero: 1}",
     "{parallelism: {tensor_parallel_size: 2, pipeline_parallel_size: 4, data_parallel_size: 2, "
     "zero_stage: 1}, training: {micro_batch_size: 1, global_batch_size: 32}}"},
    {"in their sections",
     "{training: {seq_len: 512, mbs: 2}, parallelism: {tp: 2}, cluster: {gpus: 8}}",
     "{training: {sequence_length: 512, micro_batch_size: 2}, parallelism: {tensor_parallel_size: "
     "2}, cluster: {gpu_count: 8}}"},
    {"in JSON, camelCase", R"({"seqLen": 512, "perDeviceTrainBatchSize": 2, "modelName": "gpt2"})",
     "{training: {sequence_length: 512, micro_batch_size: 2}, model: {name: gpt2}}"},
    {"nodes of a size", "{nodes: 2, gpus_per_node: 4}",
     "{cluster: {gpu_count: 8, gpus_per_node: 4}}"},
    {"nodes of the usual size", "{nodes: 2}", "{cluster: {gpu_count: 16}}"},
    {"nodes of all", "{nodes: 2, gpu_count: 8}", "{cluster: {gpu_count: 8, gpus_per_node: 4}}"},
    {"torchrun's", "{nnodes: 4, nproc_per_node: 8}",
     "{cluster: {gpu_count: 32, gpus_per_node: 8}}"},
    {"one node", "{nodes: 1, gpus: 4}", "{cluster: {gpu_count: 4, gpus_per_node: 4}}"},
    {"of each, twice said", "{nodes: 2, devices: 8, gpus_per_node: 8}",
     "{cluster: {gpu_count: 16, gpus_per_node: 8}}"},
    {"accumulation", "{gpus: 8, tp: 2, mbs: 2, gradient_accumulation_steps: 4}",
     "{cluster: {gpu_count: 8}, parallelism: {tensor_parallel_size: 2}, training: "
     "{micro_batch_size: 2, global_batch_size: 32}}"},
    {"what asks for nothing",
     "{gradient_checkpointing: false, bf16: false, cpu_offload: false, lora: false, "
     "offload_param: none}",
     "{training: {recompute: {mode: none}}}"},
    {"a word for adapters", "{training: {adapter: lora, lora_r: 16}, peft: false}",
     "{training: {adapter: {method: lora, rank: 16}}}"},
    {"transformers' words for quantized weights",
     "{qlora: true, load_in_4bit: true, bnb_4bit_use_double_quant: true, "
     "bnb_4bit_compute_dtype: bfloat16, quant_method: bnb, load_in_8bit: false}",
     "{training: {adapter: {method: qlora}, quantization: {format: nf4, double_quantization: true, "
     "compute_dtype: bf16}}}"},
    {"axolotl's QLoRA", "{adapter: qlora, load_in_4bit: true, bf16: auto, lora_r: 16}",
     "{training: {adapter: {method: qlora, rank: 16}, quantization: {format: nf4}}}"},
    {"a format beside its bits", "{load_in_4bit: true, bnb_4bit_quant_type: fp4, use_peft: true}",
     "{training: {adapter: {method: lora}, quantization: {format: fp4}}}"},
    {"bits beside a format",
     "{quantization_bit: 4, bnb_4bit_quant_type: fp4, precision: bf16-pure, bf16: true}",
     "{training: {quantization: {format: fp4}, precision: {preset: bf16-pure}}}"},
    {"eight bits", "{quant_bits: 8, use_liger_kernel: true, enable_liger_kernel: yes}",
     "{training: {quantization: {format: int8}}, runtime: {liger_kernel: true}}"},
    {"the same twice", "{peft_type: LORA, adapter: lora, use_peft: true, lora: true}",
     "{training: {adapter: {method: lora}}}"},
    {"LoRA that is DoRA", "{adapter: lora, peft_use_dora: true}",
     "{training: {adapter: {method: dora}}}"},
    {"TRL's DoRA", "{use_peft: true, use_dora: true}", "{training: {adapter: {method: dora}}}"},
    {"DoRA by itself", "{use_dora: true, peft_use_dora: false}",
     "{training: {adapter: {method: dora}}}"},
    {"what the Trainer fills in",
     "{zero_optimization: {stage: 2, reduce_bucket_size: auto}, bf16: {enabled: auto}, "
     "train_batch_size: auto, train_micro_batch_size_per_gpu: auto, gradient_accumulation_steps: "
     "auto, per_device_train_batch_size: 2}",
     "{parallelism: {zero_stage: 2}, runtime: {framework: deepspeed}, training: "
     "{micro_batch_size: 2}}"},
    {"accelerate's precision", "{bf16: true, trainer: trl, framework: ddp}",
     "{training: {precision: {preset: bf16-autocast}}, runtime: {trainer: trl, framework: ddp}}"},
    {"accelerate's precision where it shards",
     "{fp16: true, trainer: hf-trainer, zero_optimization: {stage: 3}}",
     "{training: {precision: {preset: fp16-mixed}}, parallelism: {zero_stage: 3}, runtime: "
     "{trainer: hf-trainer, framework: deepspeed}}"},
    {"LLaMA-Factory's", "{quantization_bit: 4}", "{training: {quantization: {format: nf4}}}"},
    {"a word for quantization", "{training: {adapter: qlora, quantization: nf4}}",
     "{training: {adapter: {method: qlora}, quantization: {format: nf4}}}"},
    {"in any case", "{training: {optimizer: AdamW, attention: Flash}}",
     "{training: {optimizer: {name: adamw}, attention: flash}}"},
    {"trainers decide", "{precision: bf16, trainer: torchtune}",
     "{training: {precision: {preset: bf16-pure}}, runtime: {trainer: torchtune}}"},
    {"mebibytes", "{runtime: {allocator: {max_split_size_mb: 512}}}",
     "{runtime: {allocator: {max_split_size_bytes: 536870912}}}"},
    {"nobody's business", "{model: {hf_config: {seq_len: 8k, model_type: x}}}",
     "{model: {hf_config: {seq_len: 8k, model_type: x}}}"},
};

TEST_F(JobTranslatorTest, SaysTheSameInTheApisNames) {
  for (const Same& row : kSame) {
    const Outcome written = Read(row.written);
    const Outcome own = Read(row.own);
    EXPECT_THAT(written.wrong, IsEmpty()) << row.name;
    EXPECT_THAT(own.wrong, IsEmpty()) << row.name;
    EXPECT_THAT(own.read_as, IsEmpty()) << row.name;
    EXPECT_TRUE(MessageDifferencer::Equals(written.job, own.job))
        << row.name << "\n"
        << written.job.DebugString() << own.job.DebugString();
  }
}

bool IsSwitch(absl::string_view path) {
  JobSpec job;
  job.model.source = TransformerSpec();
  const FieldRow* const row = FindFieldRow(path);
  if (row == nullptr || row->place == nullptr) return false;
  return std::holds_alternative<std::optional<bool>*>(row->place(job));
}

// Each name by itself: whatever it is worth, it is read.
TEST_F(JobTranslatorTest, ReadsEveryName) {
  for (const FieldSynonym& row : FieldSynonyms()) {
    const bool counted =
        row.reading == WordReading::kNodes || row.reading == WordReading::kAccumulation;
    std::string value = IsBoolean(row.reading) ? "true" : "2";
    if (row.field == "training.recompute.modules") value = "[mlp]";
    if (row.reading == WordReading::kWords) value = std::string(row.on.substr(0, row.on.find(' ')));
    if (IsSwitch(row.field)) value = row.reading == WordReading::kHost ? "cpu" : "true";
    Settings settings = {{std::string(row.word), value}};
    if (counted) settings.push_back({"cluster.gpu_count", "8"});
    EXPECT_THAT(Read("", settings).wrong, IsEmpty()) << row.word;
  }
}

struct Wrong {
  const char* name;
  const char* written;
  std::vector<std::string> wrong;
};

TEST_F(JobTranslatorTest, SaysWhatAWordIsWhereItIsNone) {
  const Wrong kWrong[] = {
      {"not modelled",
       "{cpu_offload: true}",
       {"job.cpu_offload: true; not modelled yet: what is moved to the host's memory"}},
      {"not modelled, of DeepSpeed",
       "{zero_optimization: {stage: 3, offload_param: {device: nvme}}}",
       {"job.zero_optimization.offload_param.device: nvme; must be cpu or none: another device is "
        "not modelled yet"}},
      {"several fields",
       "{batch_size: 8}",
       {"job.batch_size: 8; may be training.micro_batch_size (of one GPU at once) or "
        "training.global_batch_size (of an optimizer step)"}},
      {"fsdp",
       "{parallelism: {fsdp: full_shard}}",
       {"job.parallelism.fsdp: full_shard; is runtime.framework fsdp2 (fully_shard) or fsdp1 "
        "(FullyShardedDataParallel), with parallelism.zero_stage 3 (full shard) or 2 (shard grad "
        "op)"}},
      {"bf16 of hf-trainer",
       "{precision: bf16, trainer: hf-trainer}",
       {"job.training.precision.preset: bf16; is bf16-autocast with ddp, bf16-mixed with FSDP and "
        "DeepSpeed, under this trainer"}},
      {"bf16 of trl",
       "{precision: bf16, trainer: trl}",
       {"job.training.precision.preset: bf16; is bf16-autocast with ddp, bf16-mixed with FSDP and "
        "DeepSpeed, under this trainer"}},
      {"DoRA beside QLoRA",
       "{adapter: qlora, use_dora: true}",
       {"job.use_dora: true; is training.adapter.method dora, which is qlora here"}},
      {"eight bits of four",
       "{load_in_4bit: true, load_in_8bit: true}",
       {"job.load_in_8bit: true; is training.quantization.format int8, which is nf4 here"}},
      {"a switch", "{bf16: maybe}", {"job.bf16: maybe; must be true or false"}},
      {"no number", "{nodes: many}", {"job.nodes: many; must be a whole number above 0"}},
      {"a size of two meanings",
       "{gpu_memory: 80GB}",
       {"job.cluster.gpu_memory_bytes: 80GB; must be bytes, or as 80GiB: GB is 10^9 bytes to some "
        "and 2^30 to others"}},
      {"nobody's", "{colour: red}", {"job.colour: red; no such field"}},
      {"nobody's of DeepSpeed",
       "{zero_optimization: {stage: 1, colour: red}}",
       {"job.zero_optimization.colour: red; no such field"}},
      {"twice",
       "{seq_len: 1, training: {sequence_length: 2}}",
       {"job.training: sequence_length; must be given once"}},
      {"a format of fp8 for fp4, and the other way about",
       "{fp4_format: hybrid, fp8_format: e2m1}",
       {"job.fp4_format: hybrid; must be e2m1", "job.fp8_format: e2m1; must be hybrid or e4m3"}},
      {"two formats",
       "{fp8_format: hybrid, fp4_format: e2m1}",
       {"job.training.precision: preset; must be given once"}},
      {"a word against a switch",
       "{training: {optimizer: {name: paged_adamw_8bit, paged: false}}}",
       {"job.training.optimizer.name: paged_adamw_8bit; means training.optimizer.paged true"}},
      {"nodes and gpus",
       "{nodes: 2, gpus: 8}",
       {"job.gpus: 8; may be of each of 2 nodes or of all: say gpus_per_node or gpu_count"}},
      {"nodes that do not divide",
       "{nodes: 3, gpu_count: 8}",
       {"job.nodes: 3; must divide gpu_count 8"}},
      {"nodes that contradict",
       "{nodes: 2, gpus_per_node: 8, gpu_count: 8}",
       {"job.nodes: 2; with gpus_per_node 8 are 16 GPUs, but gpu_count is 8"}},
      {"accumulation of nobody knows how many",
       "{gradient_accumulation_steps: 4}",
       {"job.gradient_accumulation_steps: 4; needs cluster.gpu_count: global_batch_size is this x "
        "micro_batch_size x data_parallel_size"}},
      {"accumulation that contradicts",
       "{gpus: 8, gradient_accumulation_steps: 4, gbs: 8}",
       {"job.gradient_accumulation_steps: 4; makes global_batch_size 32, but that is 8"}},
  };
  for (const Wrong& row : kWrong) EXPECT_EQ(Read(row.written).wrong, row.wrong) << row.name;
}

TEST_F(JobTranslatorTest, SaysWhatWasRead) {
  EXPECT_THAT(Read("{seq_len: 8k, optim: adamw_torch, training: {attention: eager}}").read_as,
              ElementsAre("training.sequence_length 8192, written as seq_len: 8k",
                          "training.optimizer.name adamw, written as optim: adamw_torch",
                          "training.optimizer.implementation foreach, written as adamw_torch"));
  EXPECT_THAT(Read("{precision: bf16}").read_as,
              ElementsAre(HasSubstr("training.precision.preset bf16-mixed, written as bf16; ")));
  EXPECT_THAT(Read("{nodes: 2}").read_as,
              ElementsAre("cluster.gpu_count 16, written as nodes: 2, of 8 GPUs"));
}

TEST_F(JobTranslatorTest, TwoFormatsContradictAsSettingsToo) {
  EXPECT_THAT(
      Read("", {{"fp8-format", "hybrid"}, {"fp4-format", "e2m1"}}).wrong,
      ElementsAre("job.fp4-format: e2m1; must be given once: fp8-format is the same field"));
  EXPECT_THAT(Read("", {{"fp8-format", "hybrid"}, {"fp8-format", "E4M3"}}).wrong, IsEmpty());
  EXPECT_EQ(
      Read("{fp8_format: hybrid}", {{"fp4-format", "e2m1"}}).job.training().precision().preset(),
      "fp4-mixed")
      << "settings stand before a file";
}

TEST_F(JobTranslatorTest, SettingsStandBeforeAFile) {
  const Outcome longer = Read("{seq_len: 8k, mbs: 1}", {{"training.sequence_length", "4k"}});
  EXPECT_EQ(longer.job.training().sequence_length(), 4096);
  EXPECT_THAT(longer.read_as, ElementsAre("training.micro_batch_size 1, written as mbs: 1",
                                          "training.sequence_length 4096, written as 4k"));
  EXPECT_EQ(
      Read("{nodes: 2, gpus_per_node: 8}", {{"cluster.gpu_count", "8"}}).job.cluster().gpu_count(),
      8);
  EXPECT_EQ(Read("{gpu_count: 8, gpus_per_node: 8}", {{"nodes", "4"}}).job.cluster().gpu_count(),
            32);
  EXPECT_EQ(Read("{gpus: 8}", {{"gbs", "64"}, {"grad-accum", "8"}}).wrong.size(), 0u);
  EXPECT_EQ(Read("{zero: 1}", {{"zero", "3"}}).job.parallelism().zero_stage(), 3);
  EXPECT_EQ(Read("{}", {{"model", "gpt2"}}).job.model().name(), "gpt2");
  const auto method = [this](const char* file, const Settings& settings) {
    return Read(file, settings).job.training().adapter().method();
  };
  EXPECT_EQ(method("{adapter: lora}", {{"use-dora", "true"}}), "dora");
  EXPECT_EQ(method("{use_dora: true}", {{"training.adapter.method", "lora"}}), "lora");
  EXPECT_EQ(method("{use_dora: true}", {{"training.adapter", "lora"}}), "lora");
  EXPECT_EQ(method("{use_dora: true}", {{"training.adapter", "{method: lora}"}}), "lora");
  EXPECT_EQ(method("{adapter: qlora}", {{"use-dora", "true"}}), "dora");
  EXPECT_EQ(Read("{quantization: int8}", {{"load-in-4bit", "true"}})
                .job.training()
                .quantization()
                .format(),
            "nf4");
  EXPECT_EQ(Read("{}", {{"training.precision", "{preset: fp32, master_dtype: none}"}})
                .job.training()
                .precision()
                .preset(),
            "fp32");
}

TEST(ModelSettingTest, IsAFileOrAName) {
  const struct {
    const char* model;
    const char* field;
  } kRows[] = {
      {"llama-3.1-8b", "model.name"},       {"meta-llama/Llama-3.1-8B", "model.name"},
      {"config.json", "model.hf_config"},   {"a/config.json", "model.hf_config"},
      {"./llama", "model.hf_config"},       {"../llama", "model.hf_config"},
      {"/models/llama", "model.hf_config"}, {"models/meta/llama", "model.hf_config"},
      {"~/llama", "model.hf_config"},       {"models/", "model.hf_config"},
  };
  for (const auto& row : kRows) EXPECT_EQ(ModelSetting(row.model).field, row.field) << row.model;
}

TEST_F(JobTranslatorTest, AModelsConfigIsNoJob) {
  const std::string path = Write(R"({"model_type": "llama", "hidden_size": 64})", "config.json");
  Violations misread;
  const auto job = ReadJob(path, {}, &misread);
  EXPECT_THAT(std::string(job.status().message()),
              HasSubstr("; must be a job: --model " + path + " takes it"));
}

TEST_F(JobTranslatorTest, ReadsTheLinesOfAScript) {
  const std::string script =
      "#!/bin/bash\n#SBATCH --nodes=1\n#PLIMSOLL model=gpt2 seq_len=1k resize=allowed\n"
      "#PLIMSOLL gpu=h100-80gb-sxm gpus=8 zero=3\necho hello: [\n";
  const Outcome reading = Read(script, {{"training.micro_batch_size", "2"}});
  EXPECT_THAT(reading.wrong, IsEmpty());
  const Outcome own = Read(
      "{model: {name: gpt2}, training: {sequence_length: 1024, micro_batch_size: 2}, cluster: "
      "{gpu: "
      "h100-80gb-sxm, gpu_count: 8}, parallelism: {zero_stage: 3}}");
  EXPECT_TRUE(MessageDifferencer::Equals(reading.job, own.job)) << reading.job.DebugString();
}

TEST_F(JobTranslatorTest, AScriptAsksSlurmForItsGpus) {
  const Outcome reading = Read(
      "#!/bin/sh\n#SBATCH -N 2 --gpus-per-node=h100-80gb-sxm:8\n#PLIMSOLL model=gpt2\nsrun python "
      "a.py\n");
  EXPECT_THAT(reading.wrong, IsEmpty());
  EXPECT_EQ(reading.job.cluster().gpu(), "h100-80gb-sxm");
  EXPECT_EQ(reading.job.cluster().gpu_count(), 16);
  EXPECT_EQ(reading.job.cluster().gpus_per_node(), 8);
  EXPECT_THAT(Read("#!/bin/sh\n#SBATCH --gpus=8\n#PLIMSOLL model=gpt2 gpus=4\n").wrong,
              ElementsAre("cluster.gpu_count: 4; the job asks the scheduler for 8 GPUs"));
}

TEST_F(JobTranslatorTest, AScriptMayNameAJobFile) {
  const std::string job = Write("{model: gpt2, seq_len: 1k}", "own.yaml");
  const Outcome reading = Read("echo\n#PLIMSOLL " + job + " mbs=4\n");
  EXPECT_THAT(reading.wrong, IsEmpty());
  EXPECT_EQ(reading.job.training().sequence_length(), 1024);
  EXPECT_EQ(reading.job.training().micro_batch_size(), 4);
}

TEST_F(JobTranslatorTest, AScriptThatSaysNoJobIsRefused) {
  EXPECT_THAT(
      Read("#!/bin/sh\necho\n").wrong,
      ElementsAre(HasSubstr("job.yaml: a script without #PLIMSOLL lines; must say its job")));
  const std::string self = folder_ + "/job.yaml";
  EXPECT_THAT(Read("#PLIMSOLL " + self + "\n").wrong,
              ElementsAre("#PLIMSOLL: " + self + "; must be a job file, no script"));
  EXPECT_THAT(Read("#!/bin/sh\n#PLIMSOLL a.yaml b.yaml\n").wrong.size(), 2u);
}

}  // namespace
}  // namespace plimsoll
