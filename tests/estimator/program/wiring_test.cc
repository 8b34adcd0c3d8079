// Programs of random jobs, as lowering leaves them: what each op reads was made before it, what it
// keeps it touches, and blocks fit together.
#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "estimator/program/block_builder.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs.h"
#include "tests/testing/random_jobs.h"

namespace plimsoll {
namespace {

// One walk over a block's ops in their order.
class Walk {
 public:
  explicit Walk(const Block& block) : block_(block), made_(block.tensors.size(), false) {
    if (block.input != kNoTensor) made_[block.input] = true;
  }

  void Check() {
    for (const Op& op : block_.ops) {
      ASSERT_NO_FATAL_FAILURE(CheckTensors(op)) << block_.name << ": " << op.name;
      ASSERT_NO_FATAL_FAILURE(CheckTemporaries(op)) << block_.name << ": " << op.name;
      for (const TensorId id : op.parameters) {
        ASSERT_LT(id, block_.parameters.size()) << op.name;
        ++readers_[id];
      }
    }
    CheckParameters();
    if (block_.output != kNoTensor) {
      ASSERT_TRUE(made_[block_.output]) << block_.name;
    }
  }

 private:
  // Inputs are there, outputs are not yet, and what is kept is one of either.
  void CheckTensors(const Op& op) {
    for (const TensorId id : op.inputs) {
      ASSERT_LT(id, made_.size());
      ASSERT_TRUE(made_[id]) << block_.tensors[id].name << " is read before it is made";
    }
    for (const TensorId id : op.outputs) {
      ASSERT_LT(id, made_.size());
      ASSERT_FALSE(made_[id]) << block_.tensors[id].name << " is made twice";
      made_[id] = true;
      const TensorId storage = block_.tensors[id].storage;
      ASSERT_EQ(block_.tensors[storage].storage, storage) << "a storage is its own";
      ASSERT_TRUE(made_[storage]) << "a view of what is not there";
    }
    for (const TensorId id : op.saved) {
      ASSERT_TRUE(Touches(op.inputs, id) || Touches(op.outputs, id)) << block_.tensors[id].name;
    }
  }

  // Whether one of them is that tensor, or another of the same memory.
  bool Touches(const Ids& ids, TensorId id) const {
    return std::any_of(ids.begin(), ids.end(), [&](TensorId at) {
      return block_.tensors[at].storage == block_.tensors[id].storage;
    });
  }

  // What is made in passing is nobody's input or output.
  void CheckTemporaries(const Op& op) {
    for (const Ids* const ids : {&op.forward_temporaries, &op.backward_temporaries}) {
      for (const TensorId id : *ids) {
        ASSERT_LT(id, made_.size());
        ASSERT_FALSE(made_[id]) << block_.tensors[id].name;
        ASSERT_EQ(block_.tensors[id].storage, id);
        ASSERT_GT(block_.tensors[id].Bytes(), 0) << block_.tensors[id].name;
      }
    }
  }

  // One op reads each, but for tables that come along with one that is tied; what is a part of
  // another is as wide.
  void CheckParameters() {
    std::set<absl::string_view> names;
    for (size_t i = 0; i < block_.parameters.size(); ++i) {
      const Parameter& parameter = block_.parameters[i];
      const bool comes_along = block_.kind == BlockKind::kHead && parameter.embedding;
      EXPECT_EQ(readers_[static_cast<TensorId>(i)], comes_along ? 0 : 1) << parameter.name;
      EXPECT_TRUE(names.insert(parameter.name).second) << parameter.name;
      EXPECT_GT(parameter.Elements(), 0) << parameter.name;
      if (!parameter.packed()) continue;
      const Parameter& whole = block_.parameters[parameter.packed_into];
      EXPECT_FALSE(whole.packed()) << parameter.name;
      EXPECT_EQ(whole.shape.rank, parameter.shape.rank) << parameter.name;
      if (parameter.shape.rank < 2) continue;  // a bias
      EXPECT_EQ(whole.shape.extents[1].size, parameter.shape.extents[1].size) << parameter.name;
    }
  }

  const Block& block_;
  std::vector<bool> made_;
  std::map<TensorId, int> readers_;
};

// Calls `with` for programs of jobs whose model is an architecture.
template <typename With>
void ForEachProgram(uint64_t seed, const With& with) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < Rounds(1200); ++round) {
    const ValidJob valid = Valid(RandomJob(random));
    if (valid->model == nullptr) continue;
    with(*valid, Lowered(valid));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(WiringTest, OpsReadWhatWasMadeBefore) {
  ForEachProgram(1, [](const Job&, const Program& program) {
    for (const Block& block : program.blocks) {
      ASSERT_NO_FATAL_FAILURE(Walk(block).Check());
    }
  });
}

// Each layer reads and gives the same, which the embedding gives first and the head reads last.
TEST(WiringTest, BlocksFitTogether) {
  ForEachProgram(2, [](const Job& job, const Program& program) {
    const Block& embedding = program.blocks.front();
    const Tensor& stream = embedding.tensors[embedding.output];
    EXPECT_EQ(stream.shape.Elements(),
              job.SequencesAtOnce() * job.sequence_length * job.model->hidden_size);
    EXPECT_EQ(embedding.tensors[embedding.input].dtype, DType::kInt64);
    for (const Block& block : program.blocks) {
      if (block.kind == BlockKind::kEmbedding) continue;
      const Tensor& input = block.tensors[block.input];
      EXPECT_EQ(input.dtype, stream.dtype) << block.name;
      EXPECT_EQ(InNumbers(input.shape), InNumbers(stream.shape)) << block.name;
      if (block.kind == BlockKind::kHead) continue;
      EXPECT_EQ(block.tensors[block.output].dtype, stream.dtype) << block.name;
      EXPECT_EQ(InNumbers(block.tensors[block.output].shape), InNumbers(stream.shape));
    }
  });
}

// Nothing is split yet: an extent is as many times its symbol as it says, unless it is a number or
// was rounded to whole chunks.
TEST(WiringTest, ExtentsAreTimesTheirSymbols) {
  ForEachProgram(3, [](const Job& job, const Program& program) {
    const Sizes sizes(job);
    const auto check = [&](const auto& shape, absl::string_view name) {
      for (uint8_t axis = 0; axis < shape.rank; ++axis) {
        const Extent& extent = shape.extents[axis];
        EXPECT_GT(extent.size, 0) << name;
        if (extent.IsSplit(Split::kChunk)) continue;  // a slice of the loss
        EXPECT_EQ(extent.splits, 0) << name;
        if (extent.symbol == Symbol::kH || extent.symbol == Symbol::kV ||
            extent.symbol == Symbol::kF || extent.symbol == Symbol::kB) {
          EXPECT_EQ(extent.size, sizes(extent.symbol, extent.times).size) << name;
        }
      }
    };
    for (const Block& block : program.blocks) {
      for (const Tensor& tensor : block.tensors) check(tensor.shape, tensor.name);
      for (const Parameter& parameter : block.parameters) check(parameter.shape, parameter.name);
    }
  });
}

// Axes that parallelism may split are axes of the shape, and no tensor is split by width and by
// sequence at once along one of them.
TEST(WiringTest, AxesAreOfTheirShapes) {
  ForEachProgram(4, [](const Job&, const Program& program) {
    for (const Block& block : program.blocks) {
      for (const Tensor& tensor : block.tensors) {
        EXPECT_LT(tensor.tensor_axis, tensor.shape.rank) << tensor.name;
        EXPECT_LT(tensor.sequence_axis, tensor.shape.rank) << tensor.name;
        EXPECT_TRUE(tensor.tensor_axis == kNoAxis || tensor.tensor_axis != tensor.sequence_axis)
            << tensor.name;
      }
      for (const Parameter& parameter : block.parameters) {
        EXPECT_LT(parameter.tensor_axis, parameter.shape.rank) << parameter.name;
        EXPECT_EQ(parameter.shrunk_by, 0) << "no pass has seen it";
      }
    }
  });
}

// Tensors whose first axis is of sequences are three times as large.
void ExpectThreeTimes(const Block& small, const Block& large) {
  ASSERT_EQ(small.tensors.size(), large.tensors.size()) << small.name;
  for (size_t i = 0; i < small.tensors.size(); ++i) {
    const Tensor& one = small.tensors[i];
    const Tensor& three = large.tensors[i];
    EXPECT_EQ(one.name, three.name);
    EXPECT_EQ(one.dtype, three.dtype) << one.name;
    const bool of_sequences = one.shape.extents[0].symbol == Symbol::kB;
    if (!of_sequences) continue;
    EXPECT_EQ(3 * one.Bytes(), three.Bytes()) << small.name << ": " << one.name;
  }
}

// More sequences change sizes alone, but for one: what is of one sequence may be a view.
TEST(WiringTest, MicroBatchesChangeSizesAlone) {
  std::mt19937_64 random(5);
  int compared = 0;
  for (int round = 0; round < Rounds(200); ++round) {
    JobSpec job = RandomJob(random);
    job.training.global_batch_size.reset();
    job.training.micro_batch_size = 6;
    if (!Refusals(job).empty() || Valid(job)->model == nullptr) continue;
    const Program large = Lowered(Valid(job));
    job.training.micro_batch_size = 2;
    const Program small = Lowered(Valid(job));
    ++compared;
    ASSERT_EQ(small.blocks.size(), large.blocks.size());
    for (size_t i = 0; i < small.blocks.size(); ++i) {
      const Block& a = small.blocks[i];
      const Block& b = large.blocks[i];
      ASSERT_EQ(a.ops.size(), b.ops.size()) << a.name;
      ASSERT_EQ(a.parameters.size(), b.parameters.size()) << a.name;
      for (size_t p = 0; p < a.parameters.size(); ++p) {
        EXPECT_EQ(a.parameters[p].Elements(), b.parameters[p].Elements()) << a.parameters[p].name;
      }
      if (a.kind == BlockKind::kEmbedding) continue;  // few tokens' gradients are summed in place
      EXPECT_NO_FATAL_FAILURE(ExpectThreeTimes(a, b));
    }
  }
  EXPECT_GT(compared, Rounds(200) / 4);
}

}  // namespace
}  // namespace plimsoll
