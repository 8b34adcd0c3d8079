#include "server/face/http_connection.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <utility>

namespace plimsoll {
namespace {

int ToInt(size_t size) { return static_cast<int>(std::min<size_t>(size, INT_MAX)); }

// What a call of OpenSSL's returned, as a call of the system's.
ssize_t ResultOf(const SSL* tls, int count) {
  if (count > 0) return count;
  const int error = SSL_get_error(tls, count);
  ERR_clear_error();
  if (error == SSL_ERROR_ZERO_RETURN) return 0;
  errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EPROTO;
  return -1;
}

// Of a name that may hold anything, a zero byte too.
std::string TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<size_t>(ASN1_STRING_length(text))};
}

// Returns an IP address as gRPC does; nothing where it is none.
std::optional<std::string> AddressOf(const ASN1_OCTET_STRING* bytes) {
  const int size = ASN1_STRING_length(bytes);
  if (size != sizeof(in_addr) && size != sizeof(in6_addr)) return std::nullopt;
  char text[INET6_ADDRSTRLEN];
  inet_ntop(size == sizeof(in_addr) ? AF_INET : AF_INET6, ASN1_STRING_get0_data(bytes), text,
            sizeof text);
  return text;
}

void AddAlternativeNames(const X509* certificate, std::vector<std::string>* names) {
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> found(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; i < sk_GENERAL_NAME_num(found.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(found.get(), i);
    if (name->type == GEN_DNS || name->type == GEN_URI || name->type == GEN_EMAIL) {
      names->push_back(TextOf(name->d.ia5));
    } else if (name->type == GEN_IPADD) {
      if (auto address = AddressOf(name->d.iPAddress)) names->push_back(*std::move(address));
    }
  }
}

}  // namespace

ssize_t ReceiveNow(int socket, SSL* tls, char* to, size_t size) {
  if (tls == nullptr) return recv(socket, to, size, MSG_DONTWAIT);
  return ResultOf(tls, SSL_read(tls, to, ToInt(size)));
}

ssize_t SendNow(int socket, SSL* tls, const char* from, size_t size) {
  if (tls == nullptr) return send(socket, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  return ResultOf(tls, SSL_write(tls, from, ToInt(size)));
}

std::shared_ptr<SSL> AcceptTls(SSL_CTX* context, int socket) {
  std::shared_ptr<SSL> tls(SSL_new(context), SSL_free);
  SSL_set_fd(tls.get(), socket);
  SSL_set_accept_state(tls.get());
  return tls;
}

std::vector<std::string> CertificateNames(const SSL* tls) {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(tls),
                                                                X509_free);
  std::vector<std::string> names;
  if (certificate == nullptr) return names;
  AddAlternativeNames(certificate.get(), &names);
  const X509_NAME* const subject = X509_get_subject_name(certificate.get());
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at >= 0) {
    names.push_back(TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at))));
  }
  return names;
}

}  // namespace plimsoll
