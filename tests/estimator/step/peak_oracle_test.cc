// A step played out one layer after another, against the peak's arithmetic over
// blocks that ran once: a second implementation, slow and simple.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"

namespace plimsoll {
namespace {

struct Peaks {
  int64_t forward = 0;
  int64_t loss = 0;
  int64_t backward = 0;
};

// Plays one steady step of one micro-batch on one stage. Gradients are in a
// buffer from the start, or (`grow`) made as backward passes each block.
class Player {
 public:
  Player(const JobSpec& job, int64_t layers) : program_(ProgramOf(job)), layers_(layers) {}

  Peaks Play() const {
    Peaks peaks;
    std::vector<const Block*> order = {&FindBlock(program_, "embedding")};
    for (int64_t i = 0; i < layers_; ++i) order.push_back(&LayerAt(i));
    int64_t kept = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const BlockRun run = RunOf(*order[i]);
      const int64_t named = i > 1 ? NamedBytes() : 0;  // of the first layer it is the input
      peaks.forward =
          std::max(peaks.forward, Base(Phase::kForward) + named + kept + run.forward.total);
      kept += run.kept.total;
    }
    const Block& head = FindBlock(program_, "head");
    const BlockRun last = RunOf(head);
    peaks.loss =
        Base(Phase::kLoss) + kept + std::max(last.forward.total, last.backward.whole.total);
    int64_t grown = GradientBytes(head);
    std::reverse(order.begin(), order.end());
    for (const Block* block : order) {
      const BlockRun run = RunOf(*block);
      kept -= run.kept.total;
      peaks.backward =
          std::max(peaks.backward, Base(Phase::kBackward) + kept + grown +
                                       std::max(run.again.total, run.backward.whole.total));
      grown += GradientBytes(*block);
    }
    return peaks;
  }

 private:
  const Block& LayerAt(int64_t index) const {
    for (const Block& block : program_.blocks) {
      if (block.kind == BlockKind::kLayer && block.layers.Has(index)) return block;
    }
    return program_.blocks.front();
  }

  // A local of the module around layers holds what the embedding gave until the head runs; a first
  // layer that runs again holds it anyway.
  int64_t NamedBytes() const {
    const Block& embedding = FindBlock(program_, "embedding");
    if (!embedding.names_output || LayerAt(0).recompute_unit > 0) return 0;
    return embedding.tensors[embedding.output].Bytes();
  }

  BlockRun RunOf(const Block& block) const {
    return plimsoll::Run(block, program_.weight_gradient, program_.gradient_dtype);
  }

  int64_t Base(Phase phase) const {
    const ParameterSums sums = SumParameters(program_, program_.stages.front());
    int64_t bytes = 0;
    for (const State& state : program_.states) {
      if ((state.alive & Bit(phase, false)) != 0) bytes += StateBytes(state, sums);
    }
    return bytes;
  }

  int64_t GradientBytes(const Block& block) const {
    if (program_.weight_gradient != WeightGradient::kKept) return 0;
    int64_t bytes = 0;
    for (const Parameter& parameter : block.parameters) {
      bytes += Bytes(program_.gradient_dtype, parameter.Elements());
    }
    return bytes;
  }

  Program program_;
  int64_t layers_;
};

struct Case {
  const char* framework;
  const char* recompute;
  int64_t interval;
};

constexpr Case kCases[] = {
    {"megatron-core", "none", 0}, {"megatron-core", "selective", 0},
    {"megatron-core", "full", 0}, {"ddp", "none", 0},
    {"ddp", "full", 0},           {"ddp", "every-nth", 2},
    {"ddp", "every-nth", 3},      {"nanotron", "none", 0},
    {"nanotron", "full", 0},
};

JobSpec JobOf(const Case& row, int64_t layers, int64_t sequence, int64_t vocab) {
  JobSpec job = With(SmallJob(), row.framework);
  Shape(job).layer_count = layers;
  Shape(job).vocab_size = vocab;
  job.training.sequence_length = sequence;
  job.training.global_batch_size = 2;  // one micro-batch
  job.training.recompute.mode = row.recompute;
  if (row.interval > 0) job.training.recompute.interval = row.interval;
  return job;
}

int64_t PeakAt(const RankMemory& rank, Phase phase) {
  return rank.moments[kPhaseCount + static_cast<size_t>(phase)].peak_allocated_bytes;
}

TEST(PeakOracleTest, ForwardAndLossPlayOutAsComputed) {
  for (const Case& row : kCases) {
    for (const int64_t layers : {3, 4, 7, 12}) {
      for (const int64_t sequence : {32, 1024}) {
        for (const int64_t vocab : {256, 32256}) {
          const JobSpec job = JobOf(row, layers, sequence, vocab);
          const RankMemory rank = Estimate(job).ranks[0];
          const Peaks played = Player(job, layers).Play();
          const std::string what = absl::StrCat(row.framework, " ", row.recompute, " L ", layers,
                                                " S ", sequence, " V ", vocab);
          EXPECT_EQ(PeakAt(rank, Phase::kForward), played.forward) << what;
          EXPECT_EQ(PeakAt(rank, Phase::kLoss), played.loss) << what;
        }
      }
    }
  }
}

TEST(PeakOracleTest, BackwardPlaysOutAsComputed) {
  for (const Case& row : kCases) {
    for (const int64_t layers : {3, 4, 7, 12}) {
      for (const int64_t sequence : {32, 1024}) {
        const JobSpec job = JobOf(row, layers, sequence, 256);
        const Player player(job, layers);
        const int64_t computed = PeakAt(Estimate(job).ranks[0], Phase::kBackward);
        const int64_t played = player.Play().backward;
        EXPECT_EQ(computed, played)
            << row.framework << " " << row.recompute << " L " << layers << " S " << sequence;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
