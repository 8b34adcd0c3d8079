#include "server/face/tls.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "server/words/document.h"

namespace plimsoll {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

absl::Status Bad(const std::string& file, absl::string_view what) {
  ERR_clear_error();
  return absl::InvalidArgumentError(absl::StrCat(file, ": ", what));
}

Bio BioOf(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

std::vector<Certificate> CertificatesOf(const std::string& text) {
  const Bio bio = BioOf(text);
  std::vector<Certificate> certificates;
  for (;;) {
    Certificate one(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
    if (one == nullptr) break;
    certificates.push_back(std::move(one));
  }
  ERR_clear_error();  // of the end
  return certificates;
}

// A key that needs a password is refused: nobody is there to be asked.
Key KeyOf(const std::string& text) {
  const Bio bio = BioOf(text);
  const auto no_password = [](char*, int, int, void*) { return 0; };
  return {PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr), EVP_PKEY_free};
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  ASN1_TIME_to_tm(time, &parts);
  return absl::FromTM(parts, absl::UTCTimeZone());
}

absl::Status CheckDates(const std::string& file, const X509* certificate) {
  const absl::Time begin = TimeOf(X509_get0_notBefore(certificate));
  const absl::Time end = TimeOf(X509_get0_notAfter(certificate));
  const auto text = [](absl::Time time) {
    return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
  };
  if (absl::Now() < begin) return Bad(file, absl::StrCat("not valid before ", text(begin)));
  if (absl::Now() >= end) return Bad(file, absl::StrCat("has expired, on ", text(end)));
  return absl::OkStatus();
}

// Returns nothing where OpenSSL refuses the certificate or its key.
std::shared_ptr<SSL_CTX> MakeContext(const std::vector<Certificate>& chain, EVP_PKEY* key,
                                     const std::vector<Certificate>& client_ca) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  // A write that waited is made again from a buffer elsewhere.
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  // Of sessions that go on: clients with certificates have none otherwise.
  constexpr unsigned char kSessions[] = "plimsoll";
  SSL_CTX_set_session_id_context(context.get(), kSessions, sizeof(kSessions) - 1);
  bool taken = SSL_CTX_use_certificate(context.get(), chain[0].get()) == 1;
  for (size_t i = 1; i < chain.size(); ++i) {
    taken = taken && SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  }
  taken = taken && SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  if (!taken) return nullptr;
  for (const Certificate& authority : client_ca) {
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get());
    SSL_CTX_add_client_CA(context.get(), authority.get());
  }
  if (!client_ca.empty()) SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  return context;
}

// Returns a file without a name that holds `text`.
absl::StatusOr<UniqueFd> Stage(const std::string& text) {
  const auto failed = [] {
    return absl::ResourceExhaustedError(absl::StrCat("cannot hand it on: ", std::strerror(errno)));
  };
  UniqueFd file(memfd_create("plimsoll-tls", MFD_CLOEXEC));
  if (!file.valid()) return failed();
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = write(file.get(), text.data() + at, text.size() - at);
    if (count <= 0) return failed();
    at += static_cast<size_t>(count);
  }
  return file;
}

// At once: who reads has the old text or the new. Can't fail, as both are open.
void Replace(UniqueFd next, UniqueFd* file) {
  if (file->valid()) {
    dup3(next.get(), file->get(), O_CLOEXEC);
  } else {
    *file = std::move(next);
  }
}

std::string PathOf(const UniqueFd& file) { return absl::StrCat("/proc/self/fd/", file.get()); }

}  // namespace

absl::StatusOr<ServerTls::Loaded> ServerTls::Read(const TlsFiles& files) {
  const absl::StatusOr<std::string> certificate = ReadDocument(files.certificate);
  if (!certificate.ok()) return certificate.status();
  const absl::StatusOr<std::string> key_text = ReadDocument(files.key);
  if (!key_text.ok()) return key_text.status();
  const std::vector<Certificate> chain = CertificatesOf(*certificate);
  if (chain.empty()) return Bad(files.certificate, "no certificate in it; must be PEM");
  const Key key = KeyOf(*key_text);
  if (key == nullptr)
    return Bad(files.key, "no private key in it; must be PEM, without a password");
  if (X509_check_private_key(chain[0].get(), key.get()) != 1) {
    return Bad(files.key, absl::StrCat("not the key of ", files.certificate));
  }
  const absl::Status dates = CheckDates(files.certificate, chain[0].get());
  if (!dates.ok()) return dates;
  Loaded loaded = {.identity = absl::StrCat(*key_text, "\n", *certificate),
                   .client_ca = "",
                   .context = nullptr,
                   .expiry = TimeOf(X509_get0_notAfter(chain[0].get()))};
  std::vector<Certificate> authorities;
  if (!files.client_ca.empty()) {
    const absl::StatusOr<std::string> text = ReadDocument(files.client_ca);
    if (!text.ok()) return text.status();
    authorities = CertificatesOf(*text);
    if (authorities.empty()) return Bad(files.client_ca, "no certificate in it; must be PEM");
    loaded.client_ca = *text;
  }
  loaded.context = MakeContext(chain, key.get(), authorities);
  if (loaded.context == nullptr) {
    return Bad(files.certificate, "OpenSSL does not take it: is its key too short?");
  }
  return loaded;
}

absl::StatusOr<std::unique_ptr<ServerTls>> ServerTls::Load(const TlsFiles& files) {
  std::unique_ptr<ServerTls> tls(new ServerTls(files));
  const absl::Status loaded = tls->Reload();
  if (!loaded.ok()) return loaded;
  return tls;
}

absl::Status ServerTls::Reload() {
  absl::StatusOr<Loaded> loaded = Read(files_);
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<UniqueFd> identity = Stage(loaded->identity);
  if (!identity.ok()) return identity.status();
  absl::StatusOr<UniqueFd> client_ca = Stage(loaded->client_ca);
  if (!client_ca.ok()) return client_ca.status();
  const std::lock_guard lock(mutex_);
  Replace(*std::move(identity), &identity_);
  Replace(*std::move(client_ca), &client_ca_);
  context_ = std::move(loaded->context);
  expiry_ = loaded->expiry;
  return absl::OkStatus();
}

absl::Time ServerTls::expiry() const {
  const std::lock_guard lock(mutex_);
  return expiry_;
}

std::shared_ptr<grpc::ServerCredentials> ServerTls::GrpcCredentials() const {
  using grpc::experimental::FileWatcherCertificateProvider;
  constexpr unsigned kRefreshSeconds = 1;
  const bool asks = !files_.client_ca.empty();
  grpc::experimental::TlsServerCredentialsOptions options(
      std::make_shared<FileWatcherCertificateProvider>(
          PathOf(identity_), PathOf(identity_), asks ? PathOf(client_ca_) : "", kRefreshSeconds));
  options.watch_identity_key_cert_pairs();
  if (asks) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

std::shared_ptr<SSL_CTX> ServerTls::HttpContext() const {
  const std::lock_guard lock(mutex_);
  return context_;
}

}  // namespace plimsoll
