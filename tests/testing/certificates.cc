#include "testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace plimsoll {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

constexpr long kDay = 24 * 3600;

Key NewKey() { return {EVP_EC_gen("P-256"), EVP_PKEY_free}; }

// What `write` puts into memory.
template <typename Write>
std::string TextOf(const Write& write) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  write(bio.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  ASSERT_NE(extension, nullptr) << value;
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Certificate NewCertificate(const std::string& name, EVP_PKEY* key, int days) {
  static long serial = 1;
  Certificate certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), (days - 1) * kDay);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

std::string PemOf(X509* certificate) {
  return TextOf([certificate](BIO* to) { PEM_write_bio_X509(to, certificate); });
}

}  // namespace

struct TestAuthority::Impl {
  Key key = NewKey();
  Certificate certificate = NewCertificate("authority", key.get(), 2);
};

TestAuthority::TestAuthority() : impl_(std::make_unique<Impl>()) {
  X509* const own = impl_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(own, impl_->key.get(), EVP_sha256());
  pem_ = PemOf(own);
}

TestAuthority::~TestAuthority() = default;

Pem TestAuthority::Issue(const std::string& name, int days) {
  const Key key = NewKey();
  const Certificate certificate = NewCertificate(name, key.get(), days);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(impl_->certificate.get()));
  AddExtension(certificate.get(), impl_->certificate.get(), NID_subject_alt_name,
               absl::StrCat("DNS:", name, ",IP:127.0.0.1"));
  X509_sign(certificate.get(), impl_->key.get(), EVP_sha256());
  const std::string text = TextOf([&key](BIO* to) {
    PEM_write_bio_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return {PemOf(certificate.get()), text};
}

}  // namespace plimsoll
