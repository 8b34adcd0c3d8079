// The methods of plimsoll.v1.PlannerService, as a closed set.
#ifndef PLIMSOLL_SERVER_WIRE_METHOD_H_
#define PLIMSOLL_SERVER_WIRE_METHOD_H_

#include <array>
#include <cstddef>

namespace plimsoll {

inline constexpr char kServiceName[] = "plimsoll.v1.PlannerService";

enum class Method {
  kEstimateMemory,
  kBatchEstimateMemory,
  kRecommendConfig,
  kAdmit,
  kReportUsage,
  kListModels,
  kListGpus,
};
inline constexpr size_t kMethodCount = 7;

// Name in gRPC and in metrics; path of its HTTP twin.
struct MethodName {
  const char* grpc;
  const char* path;
};

inline constexpr std::array<MethodName, kMethodCount> kMethodNames = {{
    {"EstimateMemory", "/v1:estimateMemory"},
    {"BatchEstimateMemory", "/v1:batchEstimateMemory"},
    {"RecommendConfig", "/v1:recommendConfig"},
    {"Admit", "/v1:admit"},
    {"ReportUsage", "/v1:reportUsage"},
    {"ListModels", "/v1:listModels"},
    {"ListGpus", "/v1:listGpus"},
}};

inline const MethodName& NameOf(Method method) { return kMethodNames[static_cast<size_t>(method)]; }

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_WIRE_METHOD_H_
