// Certificates for tests, made as they run.
#ifndef PLIMSOLL_TESTS_TESTING_CERTIFICATES_H_
#define PLIMSOLL_TESTS_TESTING_CERTIFICATES_H_

#include <memory>
#include <string>

namespace plimsoll {

struct Pem {
  std::string certificate;
  std::string key;
};

// An authority, whose own certificate is valid for a day.
class TestAuthority {
 public:
  TestAuthority();
  ~TestAuthority();

  const std::string& pem() const { return pem_; }
  // A certificate for a DNS name, also as its common name, and 127.0.0.1; valid from a day
  // ago for so many days.
  Pem Issue(const std::string& name, int days = 2);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
  std::string pem_;
};

}  // namespace plimsoll

#endif  // PLIMSOLL_TESTS_TESTING_CERTIFICATES_H_
