#include "estimator/program/data_collectives.h"

namespace plimsoll {
namespace {

bool ReducesEachMicroBatch(const Job& job) {
  if (job.profile->sharding == Sharding::kUnits) {
    return job.pipeline_parallel_size == 1 && !job.profile->accumulates_whole;
  }
  if (job.megatron_fsdp != nullptr) return true;
  return job.profile->sharding == Sharding::kEngine && job.zero_stage >= 2;
}

bool GathersAsLayersRun(const Job& job) {
  return job.profile->sharding == Sharding::kUnits || job.zero_stage == 3;
}

int64_t GathersOfStep(const Job& job) {
  if (!GathersAsLayersRun(job)) return 1;
  const bool runs_twice = Says(job.preference, &PreferenceRow::runs_twice);
  if (job.reshard_after_forward) return Multiply(runs_twice ? 3 : 2, job.micro_batch_count);
  return job.pipeline_parallel_size > 1 ? 1 : job.micro_batch_count;
}

// Those who have the same part of some parameters: who shards them, and copies of these.
struct Holders {
  bool experts = false;
  AxisSet shards = 0;
  AxisSet copies = 0;
};

void AddRows(const Job& job, const Holders& holders, DataCollectives& rows) {
  const Mesh mesh(job);
  const bool throughout = GathersAsLayersRun(job) || ReducesEachMicroBatch(job);
  DataCollective row{.experts = holders.experts,
                     .group = mesh.Group(holders.shards),
                     .times = ReducesEachMicroBatch(job) ? job.micro_batch_count : 1,
                     .beside = throughout ? Beside::kCompute : Beside::kBackward};
  const DataCollective gradients = row;
  if (row.group.size() > 1) {
    row.kind = CollectiveKind::kReduceScatter;
    rows.push_back(row);
    row.kind = CollectiveKind::kGather;
    row.what = Sent::kWeights;
    row.frozen = GathersAsLayersRun(job);
    row.times = GathersOfStep(job);
    if (!throughout) row.beside = Beside::kNothing;
    rows.push_back(row);
  }
  row = gradients;
  row.shards = row.group.size();
  row.group = mesh.Group(holders.copies);
  if (row.group.size() > 1) rows.push_back(row);
}

void AddSigns(const Job& job, DataCollectives& rows) {
  DataCollective row{.kind = CollectiveKind::kAllToAll,
                     .what = Sent::kSigns,
                     .group = Mesh(job).Group(kReplicaAxes),
                     .beside = Beside::kNothing};
  if (row.group.size() == 1) return;
  rows.push_back(row);
  row.kind = CollectiveKind::kGather;
  rows.push_back(row);
}

}  // namespace

DataCollectives DataCollectivesOf(const Job& job) {
  DataCollectives rows;
  if (RowOf(job.optimizer).compresses) {
    AddSigns(job, rows);
    return rows;
  }
  const bool sharded = job.zero_stage > 0;
  AddRows(job,
          sharded ? Holders{false, kShardAxes, Along(Axis::kReplicate)}
                  : Holders{false, 0, kReplicaAxes},
          rows);
  if (!SharesExpertsApart(job)) return rows;
  constexpr AxisSet kSame = Along(Axis::kExpertReplica);
  AddRows(job, sharded ? Holders{true, kSame, 0} : Holders{true, 0, kSame}, rows);
  return rows;
}

bool SharesExpertsApart(const Job& job) {
  const bool apart = job.profile->dispatches_experts || job.expert_parallel_size > 1;
  return apart && job.model->experts.Any();
}

}  // namespace plimsoll
