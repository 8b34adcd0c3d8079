#include "tests/testing/jobs.h"

#include <algorithm>
#include <memory>
#include <memory_resource>
#include <stdexcept>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "estimator/job/fields.h"
#include "estimator/job/vocabularies.h"
#include "estimator/program/lower.h"

namespace plimsoll {
namespace {

Gpu MakeGpu(const char* id, GpuArchitecture architecture, int64_t gib, bool nvswitch) {
  Gpu gpu;
  gpu.id = id;
  gpu.architecture = architecture;
  gpu.driver_memory_bytes = (gib << 30) + (int64_t{512} << 20);
  gpu.runtime_memory_bytes = gib << 30;
  gpu.nvswitch = nvswitch;
  gpu.interconnect = nvswitch ? "nvlink" : "pcie";
  gpu.memory_bandwidth_bytes_per_second = 2'000'000'000'000;
  gpu.interconnect_bytes_per_second = 300'000'000'000;
  gpu.network_bytes_per_second = 25'000'000'000;
  gpu.teraflops = {{"fp32", 20}, {"fp16", 300}, {"bf16", 300}};
  return gpu;
}

Transformer Llama() {
  Transformer model;
  model.model_type = "llama";
  model.hidden_size = model.embedding_size = 4096;
  model.layer_count = 32;
  model.head_count = 32;
  model.kv_head_count = 8;
  model.head_size = 128;
  model.ffn_size = 14336;
  model.vocab_size = 128256;
  return model;
}

Transformer Gpt2() {
  Transformer model;
  model.model_type = "gpt2";
  model.hidden_size = model.embedding_size = 1600;
  model.layer_count = 48;
  model.head_count = model.kv_head_count = 25;
  model.head_size = 64;
  model.ffn_size = 6400;
  model.vocab_size = 50257;
  model.position_count = 1024;
  model.activation = Activation::kGeluTanh;
  model.gated_mlp = false;
  model.norm = Norm::kLayerNorm;
  model.norm_bias = model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  model.tied_embeddings = true;
  model.position_embedding = PositionEmbedding::kLearned;
  model.hidden_dropout = model.attention_dropout = model.embedding_dropout = 0.1;
  return model;
}

// 3 % of allocated, 20 % of the other gauges, 10 % of capacity, at every framework
// and on four GPUs.
Calibration MakeCalibration() {
  Calibration calibration;
  calibration.id = "small";
  calibration.risks = {0.5, 0.1, 0.01};
  calibration.gpus = {"h100-80gb-sxm", "a100-80gb-sxm", "v100-32gb-sxm", "rtx-4090"};
  for (const Detail detail : {Detail::kSummary, Detail::kReplay}) {
    for (const auto& [gauge, share] :
         {std::pair(CalibratedGauge::kAllocated, 0.03), std::pair(CalibratedGauge::kReserved, 0.2),
          std::pair(CalibratedGauge::kDevice, 0.2), std::pair(CalibratedGauge::kCapacity, 0.1)}) {
      CalibrationRow row;
      row.gauge = gauge;
      row.detail = detail;
      row.row_count = 100;
      row.shares = {0, share / 2, share};
      calibration.rows.push_back(row);
      for (const Word<Framework>& framework : kFrameworks) {
        row.framework = framework.value;
        calibration.rows.push_back(row);
      }
    }
  }
  return calibration;
}

// Numbers that can be checked in the head: everything at half of the data sheet,
// of every GPU; the A100 is measured.
SpeedTable MakeSpeeds() {
  SpeedTable speed;
  speed.id = "small";
  speed.other_gpu = {.matrix_efficiency = 0.5,
                     .matrix_half_gflop = 10,
                     .attention_efficiency = 0.5,
                     .memory_efficiency = 0.5,
                     .link_efficiency = 0.5,
                     .network_efficiency = 0.5,
                     .spread = 0.5};
  GpuSpeed a100 = speed.other_gpu;
  a100.gpu = "a100-80gb-sxm";
  a100.measured = true;
  a100.spread = 0.1;
  speed.gpus = {a100};
  speed.other_framework = {.data_overlap = 0.5,
                           .kernel_seconds = 1e-6,
                           .collective_seconds = 1e-5,
                           .hop_seconds = 2e-5,
                           .step_seconds = 0.01,
                           .spread = 0.5};
  FrameworkSpeed megatron = speed.other_framework;
  megatron.framework = Framework::kMegatronCore;
  megatron.measured = true;
  megatron.spread = 0.2;
  speed.frameworks = {megatron};
  return speed;
}

const Catalog* MakeCatalog() {
  auto* catalog = new Catalog;
  catalog->models["gpt2-xl"] = Gpt2();
  catalog->models["llama-3.1-8b"] = Llama();
  catalog->hf_ids["hub/llama-8b"] = {.id = "hub/Llama-8B", .model = "llama-3.1-8b"};
  for (const Gpu& gpu : {MakeGpu("h100-80gb-sxm", GpuArchitecture::kHopper, 79, true),
                         MakeGpu("a100-80gb-sxm", GpuArchitecture::kAmpere, 79, true),
                         MakeGpu("v100-32gb-sxm", GpuArchitecture::kVolta, 31, false),
                         MakeGpu("b200-180gb", GpuArchitecture::kBlackwell, 178, true),
                         MakeGpu("mi300x-192gb", GpuArchitecture::kCdna3, 191, true),
                         MakeGpu("rtx-4090", GpuArchitecture::kAda, 23, false)}) {
    catalog->gpus[gpu.id] = gpu;
  }
  catalog->gpus["h100-80gb-sxm"].multiprocessor_count = 132;  // of others it is not known
  catalog->gpu_aliases["h100"] = "h100-80gb-sxm";
  catalog->gpu_aliases["a100"] = "a100-80gb-sxm";
  catalog->ambiguous_gpus["a100"] = {.ids = {"a100-40gb-sxm", "a100-80gb-sxm"},
                                     .others = "could also be a100-40gb-sxm"};
  catalog->calibration = MakeCalibration();
  catalog->speed = MakeSpeeds();
  return catalog;
}

template <typename Row>
const Row& Find(const std::pmr::vector<Row>& rows, absl::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return row;
  }
  throw std::runtime_error(absl::StrCat("no row is named ", name));
}

}  // namespace

const Catalog& SmallCatalog() {
  static const Catalog* const kCatalog = MakeCatalog();
  return *kCatalog;
}

JobSpec SmallJob() {
  JobSpec job;
  TransformerSpec shape;
  shape.hidden_size = 64;
  shape.layer_count = 4;
  shape.head_count = 4;
  shape.kv_head_count = 2;
  shape.ffn_size = 128;
  shape.vocab_size = 256;
  shape.gated_mlp = true;
  job.model.source = shape;
  job.training.sequence_length = 32;
  job.training.micro_batch_size = 2;
  job.runtime.framework = "ddp";
  job.cluster.gpu = "a100-80gb-sxm";
  return job;
}

TransformerSpec& Shape(JobSpec& job) { return std::get<TransformerSpec>(job.model.source); }

JobSpec Llama8B() {
  JobSpec job;
  job.model.source = std::string("llama-3.1-8b");
  job.training.sequence_length = 4096;
  job.runtime.framework = "megatron-core";
  job.cluster.gpu = "h100-80gb-sxm";
  job.cluster.gpu_count = 8;
  return job;
}

JobSpec Gpt2Xl() {
  JobSpec job;
  job.model.source = std::string("gpt2-xl");
  job.training.sequence_length = 1000;
  job.training.micro_batch_size = 32;
  job.training.precision.preset = "fp16-mixed";
  job.runtime.framework = "ddp";
  job.cluster.gpu = "v100-32gb-sxm";
  return job;
}

JobSpec TightJob() {
  JobSpec job = SmallJob();
  TransformerSpec& shape = Shape(job);
  shape.hidden_size = 2560;
  shape.layer_count = 24;
  shape.head_count = 20;
  shape.kv_head_count = 4;
  shape.ffn_size = 8192;
  shape.vocab_size = 32000;
  job.training.sequence_length = 2048;
  job.training.micro_batch_size = 1;
  job.training.global_batch_size = 16;
  job.runtime.framework = "megatron-core";
  job.cluster.gpu = "rtx-4090";
  job.cluster.gpu_count = 8;
  return job;
}

JobSpec ClassicJob() {
  JobSpec job = SmallJob();
  TransformerSpec& shape = Shape(job);
  shape.kv_head_count.reset();
  shape.ffn_size.reset();
  shape.gated_mlp = false;
  shape.position_embedding = "learned";
  shape.qkv_bias = shape.attention_output_bias = shape.mlp_bias = true;
  shape.hidden_dropout = shape.attention_dropout = 0.1;
  return job;
}

JobSpec With(JobSpec job, absl::string_view framework, absl::string_view preset) {
  job.runtime.framework = std::string(framework);
  job.training.precision.preset = std::string(preset);
  return job;
}

JobSpec WithModel(JobSpec job, absl::FunctionRef<void(Transformer&)> change) {
  auto model = std::make_shared<Transformer>(*Valid(job)->model);
  change(*model);
  job.model.source = std::shared_ptr<const Transformer>(std::move(model));
  return job;
}

JobSpec WithSequenceParallelism(JobSpec job, int64_t ranks) {
  job.parallelism.tensor_parallel_size = ranks;
  job.parallelism.sequence_parallel = true;
  return job;
}

ValidJob Valid(const JobSpec& job) {
  std::variant<ValidJob, Violations> valid = Validate(job, SmallCatalog());
  if (auto* refused = std::get_if<Violations>(&valid)) {
    throw std::runtime_error(ToText(refused->front()));
  }
  return std::get<ValidJob>(std::move(valid));
}

Program Lowered(const ValidJob& job) { return Lower(job); }

Program ProgramAfter(const ValidJob& job, PassId last) {
  Program program = Lower(job);
  for (const Pass& pass : kPasses) {
    program = pass.apply(job, std::move(program));
    if (pass.id == last) break;
  }
  return program;
}

Program ProgramOf(const JobSpec& job) { return ProgramAfter(Valid(job), PassId::kRuntime); }

namespace {

MemoryEstimate EstimateWith(const JobSpec& job, const EstimateOptions& options) {
  auto answer = EstimateMemory(job, SmallCatalog(), options);
  if (auto* refused = std::get_if<Violations>(&answer)) {
    throw std::runtime_error(ToText(refused->front()));
  }
  return std::get<MemoryEstimate>(std::move(answer));
}

}  // namespace

MemoryEstimate Estimate(const JobSpec& job) { return EstimateWith(job, {}); }

MemoryEstimate EstimateInFull(const JobSpec& job) {
  return EstimateWith(job, {.trace = true, .ledger = true});
}

std::vector<std::string> Refusals(const JobSpec& job) {
  std::vector<std::string> lines;
  const auto answer = EstimateMemory(job, SmallCatalog(), {});
  if (const auto* refused = std::get_if<Violations>(&answer)) {
    for (const Violation& violation : *refused) lines.push_back(ToText(violation));
  }
  return lines;
}

const Block& FindBlock(const Program& program, absl::string_view name) {
  return Find(program.blocks, name);
}
const Tensor& FindTensor(const Block& block, absl::string_view name) {
  return Find(block.tensors, name);
}
const Op& FindOp(const Block& block, absl::string_view name) { return Find(block.ops, name); }
const Parameter& FindParameter(const Block& block, absl::string_view name) {
  return Find(block.parameters, name);
}

const State* FindState(const Program& program, absl::string_view name) {
  for (const State& state : program.states) {
    if (state.name == name) return &state;
  }
  return nullptr;
}

int64_t KeptByLayer(const Program& program, absl::string_view block) {
  return Run(FindBlock(program, block), program.weight_gradient, program.gradient_dtype).kept.total;
}

int64_t KeptNamed(const Block& block, const std::vector<absl::string_view>& names) {
  std::vector<Storage> storages;
  Run(block, WeightGradient::kFused, DType::kBf16, &storages);
  int64_t bytes = 0;
  for (const Storage& storage : storages) {
    if (!storage.kept) continue;
    for (absl::string_view name : names) {
      if (block.tensors[storage.tensor].name == name) bytes += storage.bytes;
    }
  }
  return bytes;
}

int64_t PeakBytes(const JobSpec& job) {
  int64_t peak = 0;
  for (const RankMemory& rank : Estimate(job).ranks) {
    peak = std::max(peak, rank.allocated.expected_bytes);
  }
  return peak;
}

int64_t RoleBytesAt(const Program& program, Role role, Phase phase) {
  const ParameterSums sums = SumParameters(program, program.stages.front());
  int64_t bytes = 0;
  for (const State& state : program.states) {
    if (state.role == role && (state.alive & Bit(phase, false)) != 0) {
      bytes += StateBytes(state, sums);
    }
  }
  return bytes;
}

namespace {

std::string TextOf(bool value) { return value ? "true" : "false"; }
std::string TextOf(const std::string& value) { return value; }
template <typename Number>
std::string TextOf(const Number& value) {
  return absl::StrCat(value);
}
template <typename Value>
std::string TextOf(const std::vector<Value>& values) {
  return absl::StrJoin(values, ",");
}

std::string ValueAt(std::monostate /*none*/) { return ""; }
template <typename Value>
std::string ValueAt(const std::optional<Value>* value) {
  return value->has_value() ? TextOf(**value) : "";
}
template <typename Value>
std::string ValueAt(const std::vector<Value>* values) {
  return TextOf(*values);
}

}  // namespace

std::string Spelled(JobSpec job) {
  std::vector<std::string> fields;
  for (const FieldRow& row : kFieldRows) {
    if (row.place == nullptr) continue;
    const std::string value =
        std::visit([](const auto& place) { return ValueAt(place); }, row.place(job));
    if (!value.empty()) fields.push_back(absl::StrCat(row.path, "=", value));
  }
  for (const auto& [name, version] : job.runtime.versions) {
    fields.push_back(absl::StrCat("runtime.versions.", name, "=", version));
  }
  return absl::StrJoin(fields, " ");
}

}  // namespace plimsoll
