// What decisions on submissions are counted as. Label values come from closed sets; every
// series exists from the start, at 0.
#ifndef PLIMSOLL_SERVER_OBSERVE_ADMISSION_METRICS_H_
#define PLIMSOLL_SERVER_OBSERVE_ADMISSION_METRICS_H_

#include <map>
#include <string>
#include <tuple>

#include "plimsoll/v1/admission.pb.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/registry.h"

namespace plimsoll {

// Any thread may call.
class AdmissionMetrics {
 public:
  // `registry` outlives it.
  explicit AdmissionMetrics(prometheus::Registry* registry);

  void Admitted(const v1::AdmissionDecision& decision);

 private:
  // Of a mode, a cause and what mode `enforce` would do the decision follows.
  using Kind = std::tuple<std::string, v1::Cause, v1::Decision>;

  // Adds the series of a mode: one of each cause and each decision.
  void Add(const std::string& mode, prometheus::Family<prometheus::Counter>* family);

  std::map<Kind, prometheus::Counter*> decisions_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_ADMISSION_METRICS_H_
