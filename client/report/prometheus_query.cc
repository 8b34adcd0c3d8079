#include "client/report/prometheus_query.h"

#include <httplib.h>

#include <cmath>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "client/io/text.h"
#include "rapidjson/document.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

constexpr size_t kMaxAnswerBytes = 16 << 20;  // 100,000 GPUs take 15 MB
constexpr size_t kMaxWordsBytes = 200;

absl::Status NoAnswer(const PrometheusQuery& query, httplib::Error error, bool too_large) {
  if (too_large) {
    return absl::InternalError(absl::StrCat(query.url, ": answers with over ",
                                            kMaxAnswerBytes >> 20,
                                            " MiB; the query asks for too "
                                            "much"));
  }
  switch (error) {
    case httplib::Error::Read:
    case httplib::Error::Write:
    case httplib::Error::Canceled:
    case httplib::Error::ConnectionTimeout:
      return absl::DeadlineExceededError(absl::StrCat(query.url, ": no whole answer; --timeout is ",
                                                      absl::FormatDuration(query.timeout)));
    case httplib::Error::SSLConnection:
    case httplib::Error::SSLLoadingCerts:
    case httplib::Error::SSLServerVerification:
      return absl::UnavailableError(absl::StrCat(query.url, ": out of reach; TLS failed"));
    default:
      return absl::UnavailableError(absl::StrCat(query.url, ": out of reach; no connection"));
  }
}

// What Prometheus says is wrong, or that it is not Prometheus that answers.
absl::Status Refused(const std::string& url, int code, const rapidjson::Document& answer) {
  const bool says = answer.IsObject() && answer.HasMember("error") && answer["error"].IsString();
  const std::string words = says ? answer["error"].GetString() : "not Prometheus's HTTP API";
  const std::string line =
      absl::StrCat(url, ": HTTP ", code, "; ", Shorten(Clean(words), kMaxWordsBytes));
  const bool overloaded = code == 502 || code == 503 || code == 504 || code == 429;
  return overloaded ? absl::UnavailableError(line) : absl::InternalError(line);
}

// {"status":"success","data":{"resultType":"vector","result":[{"value":[time,"text"]},...]}}
const rapidjson::Value* VectorOf(const rapidjson::Document& answer) {
  if (!answer.IsObject()) return nullptr;
  const auto data = answer.FindMember("data");
  if (data == answer.MemberEnd() || !data->value.IsObject()) return nullptr;
  const auto type = data->value.FindMember("resultType");
  const auto result = data->value.FindMember("result");
  const auto end = data->value.MemberEnd();
  if (type == end || !type->value.IsString() || type->value != "vector") return nullptr;
  return result != end && result->value.IsArray() ? &result->value : nullptr;
}

bool ReadSample(const rapidjson::Value& sample, double* value) {
  if (!sample.IsObject()) return false;
  const auto pair = sample.FindMember("value");
  if (pair == sample.MemberEnd() || !pair->value.IsArray() || pair->value.Size() != 2 ||
      !pair->value[1].IsString()) {
    return false;
  }
  return absl::SimpleAtod(pair->value[1].GetString(), value);
}

// The address, and the path before /api.
bool SplitUrl(const std::string& url, std::string* address, std::string* path) {
  for (const char* const scheme : {"http://", "https://"}) {
    if (!absl::StartsWith(url, scheme)) continue;
    const size_t begin = std::char_traits<char>::length(scheme);
    const size_t end = std::min(url.find('/', begin), url.size());
    *address = url.substr(0, end);
    *path = url.substr(end);
    while (absl::EndsWith(*path, "/")) path->pop_back();
    return end > begin && url.find_first_of("?#@ \n", begin) == std::string::npos;
  }
  return false;
}

// Ends a client's request that takes longer than the whole of its timeout: httplib
// bounds each read, so a server that sends a byte a second could go on for ever.
class Watchdog {
 public:
  Watchdog(absl::Duration timeout, httplib::Client* client)
      : thread_([this, timeout, client] {
          if (!done_.WaitForNotificationWithTimeout(timeout)) client->stop();
        }) {}
  ~Watchdog() {
    done_.Notify();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  absl::Notification done_;
  std::thread thread_;  // begins last
};

}  // namespace

std::string PromqlQuoted(absl::string_view text) {
  return absl::StrCat(
      "\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

std::string DcgmQuery(const std::string& matchers, const std::string& window) {
  // DCGM counts in MiB. A GPU that two exporters see is one GPU.
  return absl::StrCat("max by (gpu, UUID, GPU_I_ID, Hostname, hostname) (max_over_time(",
                      "DCGM_FI_DEV_FB_USED{", matchers, "}[", window, "])) * 1048576");
}

absl::StatusOr<std::vector<double>> ReadPrometheusAnswer(const std::string& url, int code,
                                                         const std::string& body) {
  rapidjson::Document answer;
  answer.Parse<rapidjson::kParseIterativeFlag>(body.data(), body.size());
  if (code != 200 || answer.HasParseError()) return Refused(url, code, answer);
  const rapidjson::Value* const vector = VectorOf(answer);
  const absl::Status malformed =
      absl::InternalError(absl::StrCat(url,
                                       ": answers with no instant vector; the query must "
                                       "give one sample for each GPU"));
  if (vector == nullptr) return malformed;
  std::vector<double> values;
  for (const rapidjson::Value& sample : vector->GetArray()) {
    double value = 0;
    if (!ReadSample(sample, &value)) return malformed;
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<std::vector<double>> Ask(const PrometheusQuery& query) {
  std::string address, path;
  if (!SplitUrl(query.url, &address, &path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prometheus: ", query.url, "; must be a URL, as http://localhost:9090"));
  }
  httplib::Client client(address);
  if (!client.is_valid()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--prometheus: ", query.url, "; must be a URL, as http://localhost:9090"));
  }
  const auto timeout = absl::ToChronoMilliseconds(query.timeout);
  client.set_connection_timeout(timeout);
  client.set_read_timeout(timeout);
  client.set_write_timeout(timeout);
  httplib::Params params = {{"query", query.promql}};
  if (query.time != absl::InfiniteFuture()) {
    params.emplace("time", absl::StrCat(absl::ToUnixSeconds(query.time)));
  }
  std::string body;
  bool too_large = false;
  const Watchdog watchdog(query.timeout, &client);
  const httplib::Result result = client.Get(path + "/api/v1/query", params, httplib::Headers(),
                                            [&](const char* data, size_t size) {
                                              body.append(data, size);
                                              too_large = body.size() > kMaxAnswerBytes;
                                              return !too_large;
                                            });
  if (!result) return NoAnswer(query, result.error(), too_large);
  return ReadPrometheusAnswer(query.url, result->status, body);
}

}  // namespace plimsoll
