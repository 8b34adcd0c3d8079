// The methods of plimsoll.v1.PlannerService, whichever way they are called:
// convert, call, convert. No arithmetic.
#ifndef PLIMSOLL_SERVER_PLANNER_PLANNER_H_
#define PLIMSOLL_SERVER_PLANNER_PLANNER_H_

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "estimator/catalog/catalog.h"
#include "grpcpp/support/slice.h"
#include "grpcpp/support/status.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/wire/reading.h"
#include "server/wire/stop.h"
#include "server/wire/wire_writer.h"

namespace plimsoll {

class KeptAnswers;

// The most jobs of one batch.
inline constexpr int kMaxBatchSize = 1000;
// The most bytes of its answers, as protobuf; as JSON they are some three times as many.
inline constexpr size_t kMaxBatchAnswerBytes = 16 << 20;

// Each method writes the fields of its response. Any thread may call.
class Planner {
 public:
  // Keeps answers of `max_kept_bytes`. `metrics` and `log` outlive the planner.
  Planner(Catalog catalog, v1::AdmissionPolicy policy, Metrics* metrics, const Log* log,
          size_t max_kept_bytes = 0);

  // Each takes the place of the old for calls that begin from now on: all of a call sees one
  // catalog and one policy.
  void SetCalibration(Calibration calibration);
  void SetSpeed(SpeedTable speed);
  void SetPolicy(v1::AdmissionPolicy policy);

  // A request of which something could not be read is refused: for that, and for
  // what is wrong with the rest.
  grpc::Status EstimateMemory(const v1::EstimateMemoryRequest& request, const Reading& reading,
                              WireWriter* response) const;

  // The same, unless `stop` has given it up.
  grpc::Status EstimateMemory(const v1::EstimateMemoryRequest& request, const Reading& reading,
                              const SearchStop& stop, WireWriter* response) const;

  // The same where no long replay is asked for, else nothing: EstimateMemory then takes up
  // to 0.2 s, for which the threads that take calls have no time. The answer is kept for
  // requests of the same `bytes`, if there are any.
  std::optional<grpc::Status> EstimateMemoryAtOnce(const v1::EstimateMemoryRequest& request,
                                                   const Reading& reading, absl::string_view bytes,
                                                   WireWriter* response) const;

  // The answer that EstimateMemoryAtOnce gave to these bytes by the tables that are loaded now,
  // and counts it; nothing where it is not kept.
  std::optional<grpc::Slice> Recall(absl::string_view bytes) const;
  // Whether a batch asks for any replay.
  static bool Replays(const v1::BatchEstimateMemoryRequest& request);

  // `reading` is of the batch without its requests; `reading_of` says how each of these was
  // read, and is asked in their order; none: each as by default. `stop` is asked between jobs.
  grpc::Status BatchEstimateMemory(const v1::BatchEstimateMemoryRequest& request,
                                   const Reading& reading,
                                   const std::function<Reading(int)>& reading_of,
                                   const StopCheck& stop, WireWriter* response) const;

  // Takes as long as `stop` lets it.
  grpc::Status RecommendConfig(const v1::RecommendConfigRequest& request, const Reading& reading,
                               const SearchStop& stop, WireWriter* response) const;

  // Decides by the request's policy, else by the planner's. What can't be read of the job is
  // a decision too; what can't be read of the rest is refused. Searches as long as `stop` lets
  // it.
  grpc::Status Admit(const v1::AdmitRequest& request, const Reading& reading,
                     const SearchStop& stop, WireWriter* response) const;

  // Who may report is for the caller to know.
  grpc::Status ReportUsage(const v1::ReportUsageRequest& request, const Reading& reading,
                           WireWriter* response) const;

  grpc::Status ListModels(const v1::ListModelsRequest& request, WireWriter* response) const;
  grpc::Status ListGpus(const v1::ListGpusRequest& request, WireWriter* response) const;

 private:
  class Call;
  // A catalog, and answers that follow from it.
  struct Tables {
    std::shared_ptr<const Catalog> catalog;
    std::shared_ptr<KeptAnswers> kept;
  };

  template <typename Table>
  void SetTable(Table Catalog::*table, Table value);
  Tables tables() const;
  std::shared_ptr<const Catalog> catalog() const { return tables().catalog; }
  std::shared_ptr<const v1::AdmissionPolicy> policy() const;

  Metrics* const metrics_;
  const Log* const log_;
  const size_t max_kept_bytes_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Catalog> catalog_;             // guarded by mutex_
  std::shared_ptr<KeptAnswers> kept_;                  // likewise
  std::shared_ptr<const v1::AdmissionPolicy> policy_;  // likewise
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_PLANNER_PLANNER_H_
