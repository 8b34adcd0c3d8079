#include "client/job_stream.h"

#include <google/protobuf/arena.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/json_writer.h"
#include "client/line_reader.h"
#include "client/wire_json.h"
#include "google/rpc/status.pb.h"
#include "server/json.h"
#include "server/misread.h"
#include "server/server.h"
#include "server/status.h"

namespace plimsoll {
namespace {

// One call of the service takes this much: enough to make the cost of the call
// small, little enough to answer soon.
constexpr int kMaxLines = 64;
constexpr size_t kMaxChunkBytes = kMaxRequestBytes / 2;

google::rpc::Status BadLine(absl::string_view message) {
  google::rpc::Status status;
  status.set_code(static_cast<int>(absl::StatusCode::kInvalidArgument));
  status.set_message(std::string(message));
  return status;
}

// What could not be read of a line, then what the service refuses of the rest.
google::rpc::Status Refusal(Violations misread, const google::rpc::Status& answer) {
  const Violations lost = misread;
  for (Violation& violation : ListedViolations(answer)) {
    if (!FollowsFrom(lost, violation)) misread.push_back(std::move(violation));
  }
  return ToRpcStatus(InvalidArgument(misread));
}

void AppendError(const google::rpc::Status& error, JobStreamCounts* counts, std::string* text) {
  *text += "{\"error\":";
  AppendJson(error, text);
  *text += "}\n";
  ++counts->refused;
}

// Returns false where the answer is no message.
bool AppendAnswer(const JobAnswer& answer, const Violations& misread, JobStreamCounts* counts,
                  std::string* text) {
  const auto* const error = std::get_if<google::rpc::Status>(&answer);
  if (error != nullptr || !misread.empty()) {
    const google::rpc::Status refused = error != nullptr ? *error : google::rpc::Status();
    AppendError(misread.empty() ? refused : Refusal(misread, refused), counts, text);
    return true;
  }
  const auto* const type = v1::EstimateMemoryResponse::descriptor();
  if (!AppendWireJson(type, std::get<std::string>(answer), text)) return false;
  *text += '\n';
  ++counts->answered;
  return true;
}

// Lines that are asked for together, with what is wrong already kept at their
// place.
class Chunk {
 public:
  // A chunk that is full takes no more until it is answered.
  bool IsFull() const { return places_.size() >= kMaxLines || bytes_ >= kMaxChunkBytes; }
  bool IsEmpty() const { return places_.empty(); }

  void AddLine(absl::string_view line) {
    v1::EstimateMemoryRequest* request = requests_->add_requests();
    Violations misread = ReadJsonMessage(line, request);
    const size_t bytes = request->ByteSizeLong();
    if (bytes <= kMaxChunkBytes) {
      bytes_ += bytes;
      places_.push_back({nullptr, std::move(misread)});
      return;
    }
    requests_->mutable_requests()->RemoveLast();
    misread.push_back({"request", absl::StrCat(bytes, " bytes"),
                       absl::StrCat("must be at most ", kMaxChunkBytes, " bytes")});
    AddError(ToRpcStatus(InvalidArgument(misread)));
  }

  void AddError(absl::string_view message) { AddError(BadLine(message)); }

  void AddError(const google::rpc::Status& status) {
    auto* const error = google::protobuf::Arena::CreateMessage<google::rpc::Status>(&arena_);
    *error = status;
    places_.push_back({error, {}});
  }

  // Asks for every good line and appends one line of text for each line.
  absl::Status Answer(const PlannerClient& client, JobStreamCounts* counts, std::string* text) {
    std::vector<JobAnswer> answers;
    if (requests_->requests_size() > 0) {
      absl::StatusOr<std::vector<JobAnswer>> asked = client.BatchEstimateMemory(*requests_);
      if (!asked.ok()) return asked.status();
      answers = *std::move(asked);
    }
    auto next = answers.begin();
    for (const Place& place : places_) {
      if (place.error != nullptr) {
        AppendError(*place.error, counts, text);
      } else if (!AppendAnswer(*next++, place.misread, counts, text)) {
        return absl::InternalError("the service sent an answer that is no message");
      }
    }
    return absl::OkStatus();
  }

 private:
  // A line that is asked for has no error; what was misread of it is no part of
  // the request.
  struct Place {
    const google::rpc::Status* error;
    Violations misread;
  };

  google::protobuf::Arena arena_;
  v1::BatchEstimateMemoryRequest* requests_ =
      google::protobuf::Arena::CreateMessage<v1::BatchEstimateMemoryRequest>(&arena_);
  std::vector<Place> places_;
  size_t bytes_ = 0;
};

// Takes lines that are there into the chunk. Returns how the last try ended.
LineReader::Result FillChunk(LineReader* reader, Chunk* chunk) {
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

}  // namespace

absl::StatusOr<JobStreamCounts> StreamJobs(int file, const PlannerClient& client,
                                           const WriteText& write) {
  LineReader reader(file, kMaxRequestBytes);
  JobStreamCounts counts;
  std::string text;
  for (;;) {
    Chunk chunk;
    const LineReader::Result result = FillChunk(&reader, &chunk);
    if (!chunk.IsEmpty()) {
      text.clear();
      const absl::Status status = chunk.Answer(client, &counts, &text);
      if (!status.ok()) return status;
      if (!write(text)) return absl::UnknownError("standard output: cannot be written to");
    }
    if (result == LineReader::Result::kEnd) return counts;
    if (result == LineReader::Result::kWait && !reader.Fill()) {
      return absl::UnknownError(absl::StrCat("the jobs: cannot be read; ", std::strerror(errno)));
    }
  }
}

}  // namespace plimsoll
