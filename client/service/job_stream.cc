#include "client/service/job_stream.h"

#include <google/protobuf/arena.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/format/json_writer.h"
#include "client/io/line_reader.h"
#include "google/rpc/status.pb.h"
#include "server/run/server.h"
#include "server/wire/json.h"
#include "server/wire/misread.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

// A chunk that is short of its most takes a line of the most, and is a request still.
constexpr size_t kMaxChunkBytes = kMaxRequestBytes / 2;
constexpr size_t kEntryBytes = 5;  // of a line in a request: its tag and its length
constexpr size_t kMaxLineBytes = kMaxChunkBytes - kEntryBytes;
constexpr size_t kWriteBytes = 1 << 17;  // some answers, still in the processor's cache

google::rpc::Status BadLine(absl::string_view message) {
  google::rpc::Status status;
  status.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  status.set_message(std::string(message));
  return status;
}

// What could not be read of a line, then what the service refuses of the rest.
google::rpc::Status Refusal(Violations misread, const google::rpc::Status& answer) {
  return ToRpcStatus(InvalidArgument(WithRefused(std::move(misread), ListedViolations(answer))));
}

// Estimates that are asked for in one call.
class EstimateBatch {
 public:
  using Request = v1::EstimateMemoryRequest;
  static constexpr int kMaxLines = 64;  // the cost of the call is small, the answer soon there

  Request* Add() { return requests_->add_requests(); }
  void RemoveLast() { requests_->mutable_requests()->RemoveLast(); }

  absl::Status Ask(const PlannerClient& client) {
    if (requests_->requests_size() == 0) return absl::OkStatus();
    absl::StatusOr<std::vector<JobAnswer>> asked = client.BatchEstimateMemory(*requests_);
    if (!asked.ok()) return asked.status();
    answers_ = *std::move(asked);
    return absl::OkStatus();
  }

  // Why there is no answer; null where there is one.
  const google::rpc::Status* Error(int index) const {
    return std::get_if<google::rpc::Status>(&answers_[static_cast<size_t>(index)]);
  }
  // Returns false where the answer is no message.
  bool AppendAnswer(int index, std::string* text) const {
    return AppendWireJson(v1::EstimateMemoryResponse::descriptor(),
                          std::get<std::string>(answers_[static_cast<size_t>(index)]), text);
  }

 private:
  google::protobuf::Arena arena_;
  v1::BatchEstimateMemoryRequest* requests_ =
      google::protobuf::Arena::CreateMessage<v1::BatchEstimateMemoryRequest>(&arena_);
  std::vector<JobAnswer> answers_;
};

// A search is a call of its own.
class RecommendCall {
 public:
  using Request = v1::RecommendConfigRequest;
  static constexpr int kMaxLines = 1;

  Request* Add() {
    asked_ = true;
    return &request_;
  }
  void RemoveLast() { asked_ = false; }

  absl::Status Ask(const PlannerClient& client) {
    if (!asked_) return absl::OkStatus();
    const absl::Status status = client.RecommendConfig(request_, &response_, &error_);
    return absl::IsInvalidArgument(status) ? absl::OkStatus() : status;
  }

  const google::rpc::Status* Error(int /*index*/) const {
    return error_.code() == 0 ? nullptr : &error_;
  }
  bool AppendAnswer(int /*index*/, std::string* text) const {
    AppendJson(response_, text);
    return true;
  }

 private:
  bool asked_ = false;
  Request request_;
  v1::RecommendConfigResponse response_;
  google::rpc::Status error_;
};

// Lines that are asked for together, with what is wrong already kept at their
// place.
template <typename Batch>
class Chunk {
 public:
  // A chunk that is full takes no more until it is answered.
  bool IsFull() const { return places_.size() >= Batch::kMaxLines || bytes_ >= kMaxChunkBytes; }

  void AddLine(absl::string_view line) {
    typename Batch::Request* request = batch_.Add();
    Violations misread = ReadJsonMessage(line, request);
    const size_t bytes = request->ByteSizeLong();
    if (bytes <= kMaxLineBytes) {
      bytes_ += bytes + kEntryBytes;
      places_.push_back({nullptr, std::move(misread)});
      return;
    }
    batch_.RemoveLast();
    misread.push_back({"request", absl::StrCat(bytes, " bytes"),
                       absl::StrCat("must be at most ", kMaxLineBytes, " bytes")});
    AddError(ToRpcStatus(InvalidArgument(misread)));
  }

  void AddError(absl::string_view message) { AddError(BadLine(message)); }
  void AddError(const google::rpc::Status& status) {
    places_.push_back({std::make_unique<google::rpc::Status>(status), {}});
  }

  // Asks for every good line and writes one line of text for each line.
  absl::Status Answer(const PlannerClient& client, const WriteText& write,
                      JobStreamCounts* counts) {
    absl::Status status = batch_.Ask(client);
    if (!status.ok()) return status;
    std::string text;
    int next = 0;
    for (const Place& place : places_) {
      if (place.error != nullptr) {
        AppendError(*place.error, counts, &text);
      } else if (!AppendResult(next++, place.misread, counts, &text)) {
        return absl::InternalError("the service sent an answer that is no message");
      }
      if (&place != &places_.back() && text.size() < kWriteBytes) continue;
      if (!write(text)) return absl::UnknownError("standard output: cannot be written to");
      text.clear();
    }
    return absl::OkStatus();
  }

 private:
  // A line that is asked for has no error; what was misread of it is no part of
  // the request.
  struct Place {
    std::unique_ptr<google::rpc::Status> error;
    Violations misread;
  };

  static void AppendError(const google::rpc::Status& error, JobStreamCounts* counts,
                          std::string* text) {
    *text += "{\"error\":";
    AppendJson(error, text);
    *text += "}\n";
    ++counts->refused;
  }

  // Returns false where the answer is no message.
  bool AppendResult(int index, const Violations& misread, JobStreamCounts* counts,
                    std::string* text) const {
    const google::rpc::Status* const error = batch_.Error(index);
    if (!misread.empty()) {
      AppendError(Refusal(misread, error != nullptr ? *error : google::rpc::Status()), counts,
                  text);
      return true;
    }
    if (error != nullptr) {
      AppendError(*error, counts, text);
      return true;
    }
    if (!batch_.AppendAnswer(index, text)) return false;
    *text += '\n';
    ++counts->answered;
    return true;
  }

  Batch batch_;
  std::vector<Place> places_;
  size_t bytes_ = 0;
};

// Takes lines that are there into the chunk. Returns how the last try ended.
template <typename Batch>
LineReader::Result FillChunk(LineReader* reader, Chunk<Batch>* chunk) {
  absl::string_view line;
  LineReader::Result result = LineReader::Result::kLine;
  while (!chunk->IsFull()) {
    result = reader->Next(&line);
    if (result == LineReader::Result::kWait || result == LineReader::Result::kEnd) break;
    if (result == LineReader::Result::kTooLong) {
      chunk->AddError(absl::StrCat("line: too long; must be at most ", kMaxRequestBytes, " bytes"));
    } else {
      chunk->AddLine(line);
    }
  }
  return result;
}

template <typename Batch>
absl::StatusOr<JobStreamCounts> StreamLines(int file, const PlannerClient& client,
                                            const WriteText& write) {
  LineReader reader(file, kMaxRequestBytes);
  JobStreamCounts counts;
  for (;;) {
    Chunk<Batch> chunk;
    const LineReader::Result result = FillChunk(&reader, &chunk);
    const absl::Status status = chunk.Answer(client, write, &counts);
    if (!status.ok()) return status;
    if (result == LineReader::Result::kEnd) return counts;
    if (result == LineReader::Result::kWait && !reader.Fill()) {
      return absl::UnknownError(absl::StrCat("the jobs: cannot be read; ", std::strerror(errno)));
    }
  }
}

}  // namespace

absl::StatusOr<JobStreamCounts> StreamEstimates(int file, const PlannerClient& client,
                                                const WriteText& write) {
  return StreamLines<EstimateBatch>(file, client, write);
}

absl::StatusOr<JobStreamCounts> StreamRecommendations(int file, const PlannerClient& client,
                                                      const WriteText& write) {
  return StreamLines<RecommendCall>(file, client, write);
}

}  // namespace plimsoll
