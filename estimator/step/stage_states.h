// The states of one rank on its timeline: a storage for each parameter, or one
// for all, made and freed as phases begin.
#ifndef PLIMSOLL_ESTIMATOR_STEP_STAGE_STATES_H_
#define PLIMSOLL_ESTIMATOR_STEP_STAGE_STATES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "estimator/program/parameter_sums.h"
#include "estimator/program/program.h"
#include "estimator/step/plan.h"
#include "estimator/step/timeline_writer.h"

namespace plimsoll {

// Who runs forward, and who runs backward: each has a cuBLAS handle of its own.
// Source: aten/src/ATen/cuda/CublasHandlePool.cpp, getCurrentCUDABlasHandle.
enum class Thread : uint8_t { kMain, kAutograd };
inline constexpr size_t kThreadCount = 2;

class StageStates {
 public:
  // `blocks` are those of all virtual stages, in forward's order. All else outlives the states.
  StageStates(const Program& program, const Stage& stage, std::vector<StageBlock> blocks,
              TimelineWriter& writer);

  // Frees what is not alive in `phase`, then makes what is. Gradients that grow
  // in backward are made by GrowBlock alone.
  void Enter(Phase phase, bool first_step);

  // Whether backward of `chunk` makes gradients, and does not add to some.
  bool GrowsIn(size_t chunk) const { return grown_[chunk].empty(); }
  // Takes the gradients that backward of a block made, a storage for each
  // parameter (or kNoStorage), and makes those that it did not. Those that were
  // copied into the input of a reduce-scatter are gone before its output is made.
  // Returns what is on its way to the host, which is the caller's to free.
  std::vector<int32_t> GrowBlock(size_t chunk, const StageBlock& at,
                                 const std::vector<int32_t>& made);
  // One of these is another storage from here on. Returns whether it was one.
  bool ReplaceGrown(size_t chunk, int32_t from, int32_t to) {
    const auto at = std::find(grown_[chunk].begin(), grown_[chunk].end(), from);
    if (at == grown_[chunk].end()) return false;
    *at = to;
    return true;
  }
  // The same where GrowsIn did not hold: what is reduced is added to what there is, and is the
  // caller's too.
  std::vector<int32_t> AddBlock(const StageBlock& at, const std::vector<int32_t>& made);
  // Frees what goes before the embedding's gradients are sent.
  void EndUntilReduced() { EndThose(&State::until_reduced); }
  bool StepInBackward() const { return step_in_backward_; }
  // The first gradient of a parameter is there.
  void MakeWithGradient(const StageBlock& at, const Parameter& parameter);
  // `thread` multiplies matrices: its first product makes what it keeps for that.
  void MakeWorkspace(Thread thread);
  // Gradients of a block are there: of the first that has some comes what takes them.
  void BeginGradients(const StageBlock& at);
  // Backward of a micro-batch begins, and is over.
  void BeginBackward();
  void EndBackward(size_t chunk);

 private:
  // What a state's parameters had so far. Ranks split all of them as one, so that what one
  // parameter has follows from those before it.
  struct Dealt {
    ParameterSums sums;
    int64_t bytes = 0;
  };

  Dealt None() const;
  static int64_t Deal(const State& state, const ParameterSums& next, Dealt& dealt);
  bool TiedHere(const Parameter& parameter) const;
  void EachTensor(absl::FunctionRef<void(const StageBlock&, const Parameter&)> take) const;
  ParameterSums SumTensor(const State& state, const Block& block, const Parameter& tensor) const;
  void Make(size_t index);
  void MakeEach(size_t index);
  void MakeReference(size_t index);
  void MakeTogether(const std::vector<size_t>& states);
  void FillIn(const State& state);
  void EndGrown(Alive now);
  void EndThose(bool State::*which);
  void MakeAlive(Alive now, Alive then, bool temporaries);
  void SetUpBehind();
  void PassBy(Alive now);
  bool IsMade(Part part) const;
  void EndWhatBecomes(Part part);
  void End(size_t index);
  std::vector<int32_t> SendToHost(const StageBlock& at);
  std::vector<int32_t> MakeFlat(const StageBlock& at, bool cast);
  int32_t MakeGrown(const State& state, const StageBlock& at, Dealt& dealt);
  TimelineStorage PieceOf(const State& state, const StageBlock& at, const Parameter& tensor,
                          Dealt& dealt) const;
  void Release(const std::vector<int32_t>& storages);

  const Program& program_;
  const Stage& stage_;
  TimelineWriter& writer_;
  const std::vector<StageBlock> blocks_;
  std::vector<std::vector<int32_t>> alive_;  // storages of each state
  bool step_in_backward_ = false;
  std::vector<bool> made_;                   // whether a state is alive
  std::vector<std::vector<int32_t>> grown_;  // gradients of each virtual stage
  std::vector<Dealt> grown_dealt_;           // of each state, in this backward
  Alive grown_alive_ = 0;                    // when they stay
  bool grown_persists_ = false;              // when a backward is over
  bool fresh_ = true;                        // no phase was entered yet
  bool has_gradients_ = false;               // this backward made some
  Alive now_ = 0;                            // the phase
  std::array<bool, kThreadCount> multiplied_{};
};

}  // namespace plimsoll

#endif  // PLIMSOLL_ESTIMATOR_STEP_STAGE_STATES_H_
