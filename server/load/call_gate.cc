#include "server/load/call_gate.h"

#include <exception>
#include <vector>

#include "server/load/thread_time.h"
#include "server/net/address.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

// Of the others each has a place of its own in a pool, or none.
bool IsLight(Method method) {
  return method != Method::kRecommendConfig && method != Method::kAdmit;
}

// A request for one job has some 100 bytes, and a batch is many of them.
int64_t CostOf(const Call& call) {
  constexpr int64_t kBytesOfOne = 256;
  return 1 + static_cast<int64_t>(call.request_bytes) / kBytesOfOne;
}

}  // namespace

int HttpCode(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return 200;
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::OUT_OF_RANGE:
      return 400;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      return 403;
    case grpc::StatusCode::NOT_FOUND:
      return 404;
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::ALREADY_EXISTS:
      return 409;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return 429;
    case grpc::StatusCode::CANCELLED:
      return 499;
    case grpc::StatusCode::UNIMPLEMENTED:
      return 501;
    case grpc::StatusCode::UNAVAILABLE:
      return 503;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return 504;
    default:
      return 500;
  }
}

CallGate::Permit::~Permit() {
  if (gate_ != nullptr) gate_->Leave();
}

CallGate::CallGate(const Limits& limits, const Access* access, Metrics* metrics, const Log* log)
    : limits_(limits), access_(access), metrics_(metrics), log_(log) {}

std::optional<CallGate::Permit> CallGate::Enter() {
  const int64_t now = in_flight_.fetch_add(1) + 1;
  if (now > limits_.max_in_flight) {
    in_flight_.fetch_sub(1);
    return std::nullopt;
  }
  metrics_->AddInFlight(1);
  return Permit(this);
}

void CallGate::Leave() {
  in_flight_.fetch_sub(1);
  metrics_->AddInFlight(-1);
}

CallGate::Pending::Pending(CallGate* gate, Call call) : gate_(gate), call_(std::move(call)) {
  if (call_.face == Face::kGrpc) gate_->metrics_->Started(call_.method);
  TakeAccess();
  if (admitted()) TakeShare();
  if (admitted()) TakePermit();
}

std::string CallGate::Pending::caller() const {
  const std::string name = access_.has_value() ? access_->name() : "";
  return name.empty() ? HostOf(call_.caller().peer) : name;
}

void CallGate::Pending::TakeShare() {
  if (call_.waited.has_value()) gate_->shares_.Waited(*call_.waited, start_);
  if (!IsLight(call_.method)) return;
  const std::chrono::milliseconds retry_after =
      gate_->shares_.Take([this] { return caller(); }, CostOf(call_), start_);
  if (retry_after.count() > 0) refusal_ = OverShare(retry_after);
}

void CallGate::Pending::TakePermit() {
  std::optional<Permit> permit = gate_->Enter();
  if (permit.has_value()) {
    permit_.emplace(*std::move(permit));
  } else {
    refusal_ = Overloaded(gate_->limits_.max_in_flight, "requests", kRetrySoon);
  }
}

void CallGate::Pending::TakeAccess() {
  if (!gate_->access_->asks() && call_.method != Method::kReportUsage) return;
  access_.emplace(gate_->access_->Enter(call_.identity(), call_.method));
  refusal_ = access_->status();
  series_ = &gate_->metrics_->callers().Of(access_->name());
  series_->Called(access_->broken_rule());
}

void CallGate::Pending::Charge(std::chrono::nanoseconds time) const {
  if (!access_.has_value()) return;
  access_->Charge(time);
  series_->Worked(time);
}

std::optional<grpc::Status> CallGate::Pending::TryOrRefuse(
    absl::FunctionRef<std::optional<grpc::Status>()> answer) const {
  if (!admitted()) {
    const bool by_policy = access_.has_value() && !access_->admitted();
    if (!by_policy) gate_->metrics_->Shed();
    return refusal_;
  }
  try {
    return access_.has_value() ? TryAtItsCost(answer) : answer();
  } catch (const std::exception& error) {
    return Refusal(grpc::StatusCode::INTERNAL, error.what(), "INTERNAL");
  }
}

std::optional<grpc::Status> CallGate::Pending::TryAtItsCost(
    absl::FunctionRef<std::optional<grpc::Status>()> answer) const {
  const std::chrono::nanoseconds begin = ThreadTime();
  std::optional<grpc::Status> status = answer();
  Charge(ThreadTime() - begin);
  return status;
}

std::optional<grpc::Status> CallGate::Pending::Try(
    absl::FunctionRef<std::optional<grpc::Status>()> answer) {
  std::optional<grpc::Status> status = TryOrRefuse(answer);
  if (!status.has_value()) return status;
  permit_.reset();
  access_.reset();
  if (call_.ended != nullptr) call_.ended(RetryAfterOf(*status));
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start_;
  if (call_.face == Face::kGrpc) {
    gate_->metrics_->Handled(call_.method, status->error_code(), time);
  } else {
    gate_->metrics_->HttpHandled(call_.method, HttpCode(status->error_code()), time);
  }
  if (!status->ok() || time >= gate_->limits_.slow) gate_->LogCall(call_, *status, time);
  return status;
}

grpc::Status CallGate::Pending::Answer(absl::FunctionRef<grpc::Status()> answer) {
  return *Try([&answer]() -> std::optional<grpc::Status> { return answer(); });
}

void CallGate::LogCall(const Call& call, const grpc::Status& status,
                       std::chrono::duration<double> time) {
  const bool broken = status.error_code() == grpc::StatusCode::INTERNAL;
  const LogLevel level = broken ? LogLevel::kError : LogLevel::kInfo;
  if (!log_->Wants(level)) return;
  const Caller caller = call.caller();
  std::optional<int64_t> left_out = 0;
  if (!status.ok()) left_out = refusals_.Take(caller.peer, PeerLines::Clock::now());
  if (!left_out.has_value()) return;
  const absl::string_view code = CodeName(status.error_code());
  std::vector<LogField> fields = {
      {"method", NameOf(call.method).grpc},
      {"face", call.face == Face::kGrpc ? "grpc" : "http"},
      {"peer", caller.peer},
      {"code", std::string(code.data(), code.size())},
      {"duration_ms", time.count() * 1e3},
      {"request_bytes", static_cast<double>(call.request_bytes)},
  };
  if (!caller.request_id.empty()) fields.push_back({"request_id", caller.request_id});
  if (!status.ok()) fields.push_back({"message", status.error_message()});
  if (*left_out > 0) fields.push_back({"left_out", static_cast<double>(*left_out)});
  log_->Write(level, status.ok() ? "slow" : "refused", fields);
}

}  // namespace plimsoll
