#include "server/face/http.h"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/face/http_listener.h"
#include "server/face/http_methods.h"
#include "server/face/openapi.h"
#include "server/wire/json.h"
#include "server/wire/shorten.h"
#include "server/wire/status.h"

namespace plimsoll {
namespace {

using httplib::Request;
using httplib::Response;

constexpr size_t kThreads = 8;  // beside those that wait for a search
constexpr std::chrono::seconds kReadTimeout{5};
// A body this large is read to its end, so that its sender sees the refusal.
constexpr size_t kMaxDrainedBytes = 8 << 20;
// The same with the framing of its chunks.
constexpr size_t kMaxFramedBytes = 2 * kMaxDrainedBytes;

void SetStatus(const google::rpc::Status& status, int code, Response* response) {
  response->status = code;
  response->set_content(ToJson(status), "application/json");
}

struct Body {
  std::string text;
  size_t bytes = 0;    // received, whether kept or not
  bool whole = false;  // false where the sender stopped, or was too slow
  bool is_form = false;
};

// Reads a body, of which `max_bytes` are kept.
Body ReadBody(const Request& request, const httplib::ContentReader& reader, size_t max_bytes) {
  Body body;
  // With neither header there is no body, and httplib would wait for one.
  if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
    body.whole = true;
    return body;
  }
  const auto receive = [&](const char* data, size_t size) {
    body.bytes += size;
    if (body.bytes <= max_bytes) body.text.append(data, size);
    return body.bytes <= kMaxDrainedBytes;
  };
  // httplib throws where the parts of a form are read as one.
  body.is_form = request.is_multipart_form_data();
  body.whole = body.is_form
                   ? reader([](const httplib::MultipartFormData&) { return true; }, receive)
                   : reader(receive);
  return body;
}

class HttplibServer final : public HttpServer {
 public:
  HttplibServer(Address address, const HttpBackend& backend)
      : address_(std::move(address)),
        backend_(backend),
        listener_({.thread_count = kThreads + backend.max_searches,
                   .timeout = kReadTimeout,
                   .max_body_bytes = kMaxFramedBytes},
                  address_.is_unix() ? nullptr : backend.tls, &backend.callers,
                  [this](Closed why) { backend_.metrics.HttpClosed(why); }) {}
  ~HttplibServer() override { Stop(Clock::now()); }

  bool Start() {
    AddMethods();
    AddPages();
    AddErrors();
    if (!listener_.Bind(&address_)) return false;
    thread_ = std::thread([this] {
      listener_.listen_after_bind();
      ended_.Notify();
    });
    while (!listener_.is_running() && !ended_.HasBeenNotified()) std::this_thread::yield();
    return !ended_.HasBeenNotified();
  }

  const Address& address() const override { return address_; }

  void Refuse() override { listener_.stop(); }

  void Stop(Clock::time_point deadline) override {
    if (!thread_.joinable()) return;
    Refuse();
    if (!ended_.WaitForNotificationWithDeadline(absl::Now() +
                                                absl::FromChrono(deadline - Clock::now()))) {
      listener_.CutOff();
    }
    thread_.join();
    if (address_.is_unix()) RemoveSocket(address_.path);
  }

 private:
  void AddMethods() {
    for (size_t i = 0; i < kMethodCount; ++i) {
      const Method method = static_cast<Method>(i);
      listener_.Post(NameOf(method).path, [this, method](const Request& request, Response& response,
                                                         const httplib::ContentReader& reader) {
        Answer(method, request, reader, &response);
      });
    }
    // httplib would read what is posted elsewhere into memory, however much it is.
    listener_.Post(".*", [](const Request&, Response& response, const httplib::ContentReader&) {
      response.status = 404;
      response.set_header("Connection", "close");
    });
  }

  void Answer(Method method, const Request& request, const httplib::ContentReader& reader,
              Response* response) {
    const auto start = std::chrono::steady_clock::now();
    Body body = ReadBody(request, reader, backend_.max_body_bytes);
    if (body.whole) {
      HttpListener::SetBodyRead();
    } else {
      response->set_header("Connection", "close");
    }
    if (body.bytes > backend_.max_body_bytes || !body.whole || body.is_form) {
      const int code = body.bytes > backend_.max_body_bytes ? 413 : 400;
      backend_.metrics.HttpHandled(method, code, std::chrono::steady_clock::now() - start);
      return SetStatus(ToRpcStatus(InvalidArgument({BadBody(body, code)})), code, response);
    }
    const Call call = {
        .method = method,
        .face = Face::kHttp,
        .request_bytes = body.text.size(),
        .caller =
            [&request] {
              return Caller{request.remote_addr, request.get_header_value("X-Request-Id")};
            },
        .identity = [this, &request] { return IdentityOf(request); }};
    std::string answer;
    CallGate::Pending pending(&backend_.gate, call);
    if (const Access::Entry* const access = pending.access(); access != nullptr) {
      HttpListener::SetOwner({access->name(), access->max_connection_count()});
    }
    JsonCall asked = {.method = method,
                      .text = std::move(body.text),
                      .caller = {.name = pending.caller(),
                                 .arrival = std::chrono::system_clock::now(),
                                 .charge = [&pending](auto time) { pending.Charge(time); }}};
    const grpc::Status status = pending.Answer(
        [&] { return AnswerJson(backend_.planner, backend_.pools, std::move(asked), &answer); });
    if (status.ok()) return response->set_content(answer, "application/json");
    if (const auto after = RetryAfterOf(status); after.has_value()) {
      response->set_header("Retry-After", absl::StrCat(absl::ToInt64Seconds(absl::Ceil(
                                              absl::FromChrono(*after), absl::Seconds(1)))));
    }
    SetStatus(ToRpcStatus(status), HttpCode(status.error_code()), response);
  }

  Identity IdentityOf(const Request& request) const {
    const SSL* const tls = HttpListener::Tls();
    Identity identity = {.over_unix_socket = address_.is_unix(),
                         .over_tls = tls != nullptr,
                         .certified = false,
                         .names = {},
                         .authorization = request.get_header_value("Authorization")};
    if (tls != nullptr) identity.names = CertificateNames(tls);
    identity.certified = !identity.names.empty();
    return identity;
  }

  Violation BadBody(const Body& body, int code) const {
    if (body.is_form && code == 400) {
      return {"request", "multipart/form-data", "must be one JSON object",
              ViolationCode::kMalformed};
    }
    if (code == 400) {
      return {"request", absl::StrCat("cut off after ", body.bytes, " bytes"), "must be whole",
              ViolationCode::kMalformed};
    }
    return {"request", absl::StrCat("over ", backend_.max_body_bytes, " bytes"),
            absl::StrCat("must be at most ", backend_.max_body_bytes, " bytes"),
            ViolationCode::kTooLarge};
  }

  void AddPages() {
    listener_.Get("/metrics", [this](const Request&, Response& response) {
      backend_.metrics.HttpHandled(HttpPage::kMetrics, 200);
      response.set_content(backend_.metrics.Text(), "text/plain; version=0.0.4; charset=utf-8");
    });
    listener_.Get("/openapi.json", [this](const Request&, Response& response) {
      backend_.metrics.HttpHandled(HttpPage::kOpenApi, 200);
      response.set_content(OpenApiDocument(), "application/json");
    });
    listener_.Get("/healthz", [this](const Request&, Response& response) {
      backend_.metrics.HttpHandled(HttpPage::kHealthz, 200);
      response.set_content("ok\n", "text/plain");
    });
    listener_.Get("/readyz", [this](const Request&, Response& response) {
      const bool ready = backend_.ready();
      response.status = ready ? 200 : 503;
      backend_.metrics.HttpHandled(HttpPage::kReadyz, response.status);
      response.set_content(ready ? "ready\n" : "not ready\n", "text/plain");
    });
  }

  // Called for every answer of 400 and above; ours have a body.
  void AddErrors() {
    listener_.set_error_handler([this](const Request& request, Response& response) {
      if (!response.body.empty()) return;
      const bool is_method =
          std::any_of(kMethodNames.begin(), kMethodNames.end(),
                      [&](const MethodName& name) { return request.path == name.path; });
      if (is_method && request.method != "POST") {
        response.status = 405;
        response.set_header("Allow", "POST");
      }
      backend_.metrics.HttpHandled(HttpPage::kOther, response.status);
      google::rpc::Status status;
      status.set_code(response.status == 404 ? grpc::StatusCode::NOT_FOUND
                                             : grpc::StatusCode::INVALID_ARGUMENT);
      status.set_message(absl::StrCat("HTTP ", response.status, " for ",
                                      Shorten(request.method, 16), " ",
                                      Shorten(request.path, 128)));
      SetStatus(status, response.status, &response);
    });
  }

  Address address_;
  const HttpBackend backend_;
  HttpListener listener_;
  std::thread thread_;
  absl::Notification ended_;  // the listener, with all its answers
};

}  // namespace

std::unique_ptr<HttpServer> HttpServer::Start(const Address& address, const HttpBackend& backend) {
  auto server = std::make_unique<HttplibServer>(address, backend);
  if (!server->Start()) return nullptr;
  return server;
}

}  // namespace plimsoll
