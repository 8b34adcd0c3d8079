// The server's certificate, as files have it, for both faces. Files may change while it
// runs: they are read anew, and taken where they are in order as a whole.
#ifndef PLIMSOLL_SERVER_FACE_TLS_H_
#define PLIMSOLL_SERVER_FACE_TLS_H_

#include <openssl/ssl.h>

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/security/server_credentials.h"
#include "server/net/unique_fd.h"

namespace plimsoll {

// PEM files. TLS is of TCP alone: over a unix socket nobody listens in.
struct TlsFiles {
  std::string certificate;  // with the chain up to its authority; empty: no TLS
  std::string key;
  std::string client_ca;  // the authorities of callers' certificates; empty: none is asked for

  bool any() const { return !certificate.empty(); }
};

// Any thread may call.
class ServerTls {
 public:
  // Errors: INVALID_ARGUMENT, "<file>: <what is wrong>": not readable, no PEM, a key of
  //         another certificate, one that has expired or is not valid yet.
  //         RESOURCE_EXHAUSTED: the system gives no memory or descriptor to hand it on.
  static absl::StatusOr<std::unique_ptr<ServerTls>> Load(const TlsFiles& files);

  // Reads the files anew; with an error as Load's what was loaded stays.
  absl::Status Reload();

  const TlsFiles& files() const { return files_; }
  // When the certificate ends to be valid.
  absl::Time expiry() const;

  // TLS 1.2 and above; a caller's certificate is verified where it has one. gRPC takes a new
  // certificate within a second.
  std::shared_ptr<grpc::ServerCredentials> GrpcCredentials() const;
  std::shared_ptr<SSL_CTX> HttpContext() const;

 private:
  struct Loaded {
    std::string identity;  // the key and the certificate's chain
    std::string client_ca;
    std::shared_ptr<SSL_CTX> context;
    absl::Time expiry;
  };

  explicit ServerTls(TlsFiles files) : files_(std::move(files)) {}
  static absl::StatusOr<Loaded> Read(const TlsFiles& files);

  const TlsFiles files_;
  mutable std::mutex mutex_;
  UniqueFd identity_, client_ca_;     // what gRPC reads; their numbers stay
  std::shared_ptr<SSL_CTX> context_;  // guarded by mutex_
  absl::Time expiry_;                 // likewise
};

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_TLS_H_
