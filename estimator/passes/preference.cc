#include <utility>
#include <vector>

#include "estimator/passes/pass.h"
#include "estimator/program/lower.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/program/weight_casts.h"

namespace plimsoll {
namespace {

constexpr uint8_t kMlp = BitOf(RecomputeModule::kMlp);

// What Python refers to where no graph does: the embedding's output until the last layer's forward
// is over, a layer's input until its own is, and the MLP's until that is.
// Source: transformers modeling_llama.py, LlamaModel.forward, LlamaDecoderLayer.forward.
void HoldArguments(Block& block) {
  if (block.kind == BlockKind::kEmbedding) block.ops.back().saved = {block.output};
  if (block.kind != BlockKind::kLayer) return;
  block.tensors[block.input].held = true;
  std::vector<bool> of_mlp(block.tensors.size());
  uint8_t last = 0;
  for (size_t i = 0; i < block.ops.size(); ++i) {
    if ((block.ops[i].modules & kMlp) == 0) continue;
    last = static_cast<uint8_t>(i);
    for (const TensorId id : block.ops[i].outputs) of_mlp[id] = true;
  }
  for (const Op& op : block.ops) {
    if ((op.modules & kMlp) == 0) continue;
    for (const TensorId id : op.inputs) {
      if (!of_mlp[id]) block.tensors[id].held_until = last;
    }
  }
}

// A network's forward without gradients. Its casts live until autocast ends with that forward: the
// reference's weights are no less trainable than the policy's.
// Source: accelerate, accelerator.py, prepare_model.
void RunForwardAlone(const Job& job, Block& block) {
  block.forward_only = true;
  if (job.quantization.has_value()) {
    for (Parameter& parameter : block.parameters) parameter.frozen = true;
    QuantizeProducts(job, block);
  }
  for (Op& op : block.ops) op.saved = {};
  if (job.precision.autocast) AddWeightCasts(job, block);
  HoldArguments(block);
}

// The fp32 logits of a reference, of both answers, are there until the next ones have been made.
// Source: torchtune 0.6.1, recipes/lora_dpo_single_device.py, train (`_`).
void HoldLogits(const Job& job, Program& program) {
  const int64_t logits = Multiply(job.LocalTokens(), job.padded_vocab_size);
  State state{.name = "logits.reference",
              .role = Role::kLoss,
              .place = Place::kHeadStage,
              .basis = Basis::kBytes,
              .fixed_bytes = Bytes(DType::kFp32, logits)};
  state.alive = During(Phase::kBackward, Phase::kEndOfStep, true, true) |
                During(Phase::kForward, Phase::kLoss, job.micro_batch_count > 1, true);
  program.states.push_back(state);
}

// The teacher's job: its model, of which all is trained in name alone.
Job TeacherOf(const Job& student) {
  Job job = student;
  job.model = student.distillation->teacher;
  job.padded_vocab_size = job.model->vocab_size;
  job.adapter.reset();
  job.distillation->teaches = true;
  return job;
}

// Its logits are there until the student's loss is. In truth it runs behind the student's forward,
// not before: what stands at the loss, where the peak is, is the same.
// Source: trl experimental/gkd/gkd_trainer.py, GKDTrainer.compute_loss.
Program AddTeacher(const Job& student, Program program) {
  const Job job = TeacherOf(student);
  program.reference = Lower(job, program.blocks.get_allocator().resource()).blocks;
  program.reference_first = program.reference_teaches = program.empties_cache_of_losses = true;
  program.reference_layer_count = job.model->layer_count;
  int64_t bytes = 0;
  for (Block& block : program.reference) {
    const int64_t parameters =
        Multiply(CountInReference(block, program), SumBlock(block, 1).own.parameters);
    bytes = Add(bytes, Bytes(job.precision.parameter, parameters));
    RunForwardAlone(job, block);
  }
  Op& last = program.reference.back().ops.back();
  last.saved = last.outputs;
  program.states.push_back({.name = "weights.teacher",
                            .role = Role::kWeight,
                            .part = Part::kReference,
                            .basis = Basis::kBytes,
                            .dtype = job.precision.parameter,
                            .fixed_bytes = bytes,
                            .of_reference = true});
  return program;
}

}  // namespace

Program ApplyPreference(const ValidJob& job, Program program) {
  if (job->distillation.has_value()) return AddTeacher(*job, std::move(program));
  if (!job->reference.has_value()) return program;
  if (*job->reference == Reference::kPrecomputed) return program;
  program.reference = Lower(job, program.blocks.get_allocator().resource()).blocks;
  program.reference_first = RowOf(*job->preference).samples;
  for (Block& block : program.reference) RunForwardAlone(*job, block);
  if (job->profile->holds_reference_logits) HoldLogits(*job, program);
  if (*job->reference == Reference::kAdaptersOff) return program;
  program.states.push_back({.name = "weights.reference",
                            .role = Role::kWeight,
                            .part = Part::kReference,
                            .dtype = job->precision.parameter,
                            .of = job->adapter.has_value() ? Selection::kFrozen : Selection::kAll});
  return program;
}

}  // namespace plimsoll
