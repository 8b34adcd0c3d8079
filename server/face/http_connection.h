// A connection over HTTP, in the clear or over TLS, from which bytes are read as they come.
#ifndef PLIMSOLL_SERVER_FACE_HTTP_CONNECTION_H_
#define PLIMSOLL_SERVER_FACE_HTTP_CONNECTION_H_

#include <openssl/ssl.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "server/load/caller_connections.h"

namespace plimsoll {

// One thread at a time. Its owner closes the socket.
struct HttpConnection {
  int socket = -1;
  std::shared_ptr<SSL> tls = {};  // null in the clear; shakes hands while it is read from
  int answered = 0;               // requests so far
  std::string peer;               // its host; empty over a unix socket
  std::string received;           // of the next request, and what was sent ahead
  // Of who called by it last, where there is an access policy.
  std::shared_ptr<const CallerPlace> place = {};
};

// Returns the bytes read; 0 at the end, -1 where none are there yet (errno is EAGAIN) or on an
// error. `tls` may be null.
ssize_t ReceiveNow(int socket, SSL* tls, char* to, size_t size);

// Likewise of what is sent.
ssize_t SendNow(int socket, SSL* tls, const char* from, size_t size);

// Begins TLS on a socket as its server.
std::shared_ptr<SSL> AcceptTls(SSL_CTX* context, int socket);

// Returns the names in the caller's certificate, its common name last; nothing where it
// showed none.
std::vector<std::string> CertificateNames(const SSL* tls);

}  // namespace plimsoll

#endif  // PLIMSOLL_SERVER_FACE_HTTP_CONNECTION_H_
