// Keeps several unary calls in flight over one channel, as bytes, so that what
// is measured is the server and not a client's parsing.
#ifndef PLIMSOLL_TESTS_BENCH_IN_FLIGHT_H_
#define PLIMSOLL_TESTS_BENCH_IN_FLIGHT_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"

namespace plimsoll {

inline constexpr char kEstimateMemoryMethod[] = "/plimsoll.v1.PlannerService/EstimateMemory";

class CallsInFlight {
 public:
  // Sends the requests in turn, again and again.
  CallsInFlight(std::shared_ptr<grpc::Channel> channel, std::vector<grpc::ByteBuffer> requests)
      : stub_(std::move(channel)), requests_(std::move(requests)) {}

  // Keeps `width` calls in flight until `more` says no, and all have ended. At
  // most one thread calls `more` at a time. Returns how many were answered, or
  // -1 where one failed, which error() tells.
  int64_t Run(int width, std::function<bool()> more) {
    more_ = std::move(more);
    answered_ = 0;
    for (int i = 0; i < width; ++i) {
      if (const grpc::ByteBuffer* const request = Take()) Start(request);
    }
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return running_ == 0; });
    return error_.empty() ? answered_ : -1;
  }

  const std::string& error() const { return error_; }
  // Of the last answer.
  size_t response_bytes() const { return response_bytes_; }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer response;
  };

  // Returns the next request, or null where no more is to be sent.
  const grpc::ByteBuffer* Take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_.empty() || !more_()) return nullptr;
    ++running_;
    return &requests_[sent_++ % requests_.size()];
  }

  // Without the lock: gRPC may call back before UnaryCall returns.
  void Start(const grpc::ByteBuffer* request) {
    auto* const call = new Call;
    stub_.UnaryCall(&call->context, kEstimateMemoryMethod, grpc::StubOptions(), request,
                    &call->response, [this, call](const grpc::Status& status) {
                      const std::unique_ptr<Call> done(call);
                      Answered(status, done->response.Length());
                      if (const grpc::ByteBuffer* const next = Take()) Start(next);
                      End();
                    });
  }

  void Answered(const grpc::Status& status, size_t response_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    response_bytes_ = response_bytes;
    if (status.ok()) {
      ++answered_;
    } else if (error_.empty()) {
      error_ = "call failed: " + status.error_message();
    }
  }

  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--running_ == 0) ended_.notify_all();
  }

  grpc::GenericStub stub_;
  const std::vector<grpc::ByteBuffer> requests_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::function<bool()> more_;
  int running_ = 0;
  size_t sent_ = 0;
  int64_t answered_ = 0;
  size_t response_bytes_ = 0;
  std::string error_;
};

// Returns each message as one slice.
template <typename Message>
std::vector<grpc::ByteBuffer> ToBytes(const std::vector<Message>& messages) {
  std::vector<grpc::ByteBuffer> bytes;
  for (const Message& message : messages) {
    const grpc::Slice slice(message.SerializeAsString());
    bytes.emplace_back(&slice, 1);
  }
  return bytes;
}

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_BENCH_IN_FLIGHT_H_
