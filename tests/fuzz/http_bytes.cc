// What a client sends to the HTTP listener on one connection, behind a byte that says after
// which part of it the client pauses.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "server/face/http.h"
#include "tests/fuzz/fuzzer.h"
#include "tests/fuzz/service.h"

namespace plimsoll {
namespace {

// A server at a unix socket, for the whole process.
const std::string& Listening() {
  static FuzzedService& service = Service();
  static const std::string path = FileWith("") + ".socket";
  static const std::unique_ptr<HttpServer> server =
      HttpServer::Start({.path = path, .host = "", .port = 0}, {.planner = service.planner,
                                                                .gate = service.gate,
                                                                .pools = service.pools(),
                                                                .metrics = service.metrics,
                                                                .ready = [] { return true; },
                                                                .max_body_bytes = 1 << 20,
                                                                .max_searches = 2,
                                                                .callers = service.callers});
  Promise(server != nullptr, "the listener listens");
  return path;
}

// libFuzzer's clock interrupts calls every few seconds.
ssize_t Again(absl::FunctionRef<ssize_t()> call) {
  for (;;) {
    const ssize_t count = call();
    if (count >= 0 || errno != EINTR) return count;
  }
}

int Connect(const std::string& path) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof to.sun_path - 1);
  const int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* const address = reinterpret_cast<const sockaddr*>(&to);
  Promise(Again([&] { return connect(client, address, sizeof to); }) == 0, "a connection is taken");
  return client;
}

// The server may have ended the connection by then.
void Send(int client, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        Again([&] { return send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL); });
    if (count < 0) return;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

std::string ReceiveAll(int client) {
  std::string received;
  char buffer[1 << 16];
  const auto receive = [&] { return recv(client, buffer, sizeof buffer, 0); };
  for (ssize_t count = 0; (count = Again(receive)) > 0;) {
    received.append(buffer, static_cast<size_t>(count));
  }
  return received;
}

std::string Exchange(absl::string_view first, absl::string_view rest) {
  const int client = Connect(Listening());
  Send(client, first);
  if (!rest.empty()) usleep(100);
  Send(client, rest);
  shutdown(client, SHUT_WR);
  const std::string answer = ReceiveAll(client);
  close(client);
  return answer;
}

}  // namespace

void FuzzHttpBytes(absl::string_view input) {
  if (input.empty()) return;
  const size_t share = static_cast<unsigned char>(input[0]);
  input.remove_prefix(1);
  const size_t first = input.size() * share / 255;
  const std::string answer = Exchange(input.substr(0, first), input.substr(first));
  Promise(answer.empty() || absl::StartsWith(answer, "HTTP/1.1 "), "an answer is HTTP's");
  Promise(!absl::StartsWith(answer, "HTTP/1.1 500"), "no request is the server's mistake");
  Promise(absl::EndsWith(Exchange("GET /healthz HTTP/1.0\r\n\r\n", ""), "\r\n\r\nok\n"),
          "the next client is answered");
}

}  // namespace plimsoll
