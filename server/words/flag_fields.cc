#include "server/words/flag_fields.h"

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr JobFlag kFlags[] = {
    {"--accept-unknown-model-type", "model.accept_unknown_model_type", "{true,false}",
     "Whether a config.json of a type that is not known is read as a Llama's"},
    {"--sequence-length", "training.sequence_length", "N", "Tokens in one sequence, as 8192 or 8k"},
    {"--micro-batch-size", "training.micro_batch_size", "N", "Sequences a rank takes at once"},
    {"--global-batch-size", "training.global_batch_size", "N", "Sequences in an optimizer step"},
    {"--precision", "training.precision.preset",
     "{fp32,fp16-mixed,bf16-mixed,bf16-autocast,bf16-pure,fp16-pure,bf16-optimizer,fp8-mixed}",
     "Dtypes of weights, gradients and states"},
    {"--optimizer", "training.optimizer.name",
     "{sgd,sgd-momentum,rmsprop,adagrad,adam,adamw,lamb,lion,adafactor,muon,adamw-8bit}",
     "The optimizer"},
    {"--recompute", "training.recompute.mode", "{none,selective,per-op,full,every-nth}",
     "What is computed again in the backward pass"},
    {"--attention", "training.attention", "{auto,eager,flash,cudnn,memory-efficient}",
     "The attention kernel"},
    {"--loss", "training.loss.implementation",
     "{plain,chunked,chunked-cross-entropy,fused,fused-cross-entropy,te-cross-entropy}",
     "How the head and the loss are computed"},
    {"--data-parallel-size", "parallelism.data_parallel_size", "N",
     "Replicas, or ranks sharing one"},
    {"--zero-stage", "parallelism.zero_stage", "{0,1,2,3}", "What data-parallel ranks shard"},
    {"--shard-group-size", "parallelism.shard_group_size", "N", "Ranks over which ZeRO shards"},
    {"--tensor-parallel-size", "parallelism.tensor_parallel_size", "N",
     "Ranks that split each layer's matrices"},
    {"--sequence-parallel", "parallelism.sequence_parallel", "{true,false}",
     "Whether they split the sequence between them too"},
    {"--pipeline-parallel-size", "parallelism.pipeline_parallel_size", "N", "Pipeline stages"},
    {"--pipeline-schedule", "parallelism.pipeline_schedule", "{gpipe,1f1b,interleaved-1f1b}",
     "Order of the micro-batches"},
    {"--virtual-pipeline-size", "parallelism.virtual_pipeline_size", "N",
     "Model chunks on each stage"},
    {"--framework", "runtime.framework",
     "{ddp,fsdp1,fsdp2,deepspeed,megatron-core,megatron-lm,megatron-deepspeed,nanotron}",
     "The software that runs the step"},
    {"--trainer", "runtime.trainer", "{torchtitan,torchtune,litgpt,hf-trainer}",
     "The loop on top of it, where that moves bytes"},
    {"--gpu", "cluster.gpu", "GPU", "GPU id or alias; `plimsoll gpus` lists them"},
    {"--gpu-memory-bytes", "cluster.gpu_memory_bytes", "N",
     "Memory of a GPU that has no id, as 80GiB"},
    {"--gpu-count", "cluster.gpu_count", "N", "Number of GPUs"},
    {"--gpus-per-node", "cluster.gpus_per_node", "N", "GPUs in one node"},
    {"--reserved-for-others-bytes", "cluster.reserved_for_others_bytes", "N",
     "Memory that something else holds on each GPU"},
};

}  // namespace

absl::Span<const JobFlag> JobFlags() { return kFlags; }

std::string FlagField(absl::string_view name) {
  const std::string flag = absl::StrCat("--", NormalizedName(name));
  for (const JobFlag& row : kFlags) {
    if (flag == row.flag) return row.field;
  }
  return "";
}

JobSetting ToSetting(const std::string& name, const std::string& value) {
  if (name == "model") return ModelSetting(value);
  const std::string field = FlagField(name);
  return {field.empty() ? name : field, value};
}

}  // namespace plimsoll
