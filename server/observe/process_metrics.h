// The process's own figures under the names every exporter uses, from /proc.
#ifndef PLIMSOLL_SERVER_OBSERVE_PROCESS_METRICS_H_
#define PLIMSOLL_SERVER_OBSERVE_PROCESS_METRICS_H_

#include <vector>

#include "prometheus/metric_family.h"

namespace plimsoll {

// Returns process_cpu_seconds_total, process_resident_memory_bytes and the
// like; those that /proc doesn't give are left out.
//
// Source: proc(5), /proc/[pid]/stat.
std::vector<prometheus::MetricFamily> CollectProcessMetrics();

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_OBSERVE_PROCESS_METRICS_H_
