#include "client/job/comparison.h"

#include <map>
#include <utility>

#include "client/job/job_values.h"
#include "server/admit/job_environment.h"

namespace plimsoll {
namespace {

void CompareFields(v1::JobComparison* comparison) {
  std::map<JobField, std::pair<JobValue, JobValue>> values;
  const v1::ComparedJob& a = comparison->first();
  const v1::ComparedJob& b = comparison->second();
  for (auto& [field, value] : JobValues(a.job(), a.estimate())) values[field].first = value;
  for (auto& [field, value] : JobValues(b.job(), b.estimate())) values[field].second = value;
  for (const auto& [field, of_jobs] : values) {
    const auto& [first, second] = of_jobs;
    if (first.text == second.text) continue;
    v1::FieldDifference& difference = *comparison->add_fields();
    difference.set_field(field.path);
    difference.set_first(first.text);
    difference.set_second(second.text);
    difference.set_first_assumed(first.assumed);
    difference.set_second_assumed(second.assumed);
  }
}

void CompareRoles(v1::JobComparison* comparison) {
  std::map<v1::Role, v1::RoleDifference> roles;
  for (const v1::RoleBytes& part : LimitingRank(comparison->first().estimate()).breakdown()) {
    roles[part.role()].set_first_bytes(part.bytes());
  }
  for (const v1::RoleBytes& part : LimitingRank(comparison->second().estimate()).breakdown()) {
    roles[part.role()].set_second_bytes(part.bytes());
  }
  for (auto& [role, difference] : roles) {
    if (difference.first_bytes() == 0 && difference.second_bytes() == 0) continue;
    difference.set_role(role);
    difference.set_difference_bytes(difference.second_bytes() - difference.first_bytes());
    *comparison->add_roles() = difference;
  }
}

void CompareGauge(const char* name, const v1::Gauge& first, const v1::Gauge& second,
                  v1::JobComparison* comparison) {
  v1::GaugeDifference& gauge = *comparison->add_gauges();
  gauge.set_gauge(name);
  *gauge.mutable_first() = first;
  *gauge.mutable_second() = second;
  v1::Gauge& difference = *gauge.mutable_difference();
  difference.set_expected_bytes(second.expected_bytes() - first.expected_bytes());
  difference.set_bound_bytes(second.bound_bytes() - first.bound_bytes());
}

}  // namespace

v1::JobComparison Compare(v1::ComparedJob first, v1::ComparedJob second) {
  v1::JobComparison comparison;
  *comparison.mutable_first() = std::move(first);
  *comparison.mutable_second() = std::move(second);
  const v1::ComparedJob& a = comparison.first();
  const v1::ComparedJob& b = comparison.second();
  CompareFields(&comparison);
  CompareRoles(&comparison);
  const v1::RankMemory& of_a = LimitingRank(a.estimate());
  const v1::RankMemory& of_b = LimitingRank(b.estimate());
  CompareGauge("allocated", of_a.allocated(), of_b.allocated(), &comparison);
  CompareGauge("reserved", of_a.reserved(), of_b.reserved(), &comparison);
  CompareGauge("device", of_a.device(), of_b.device(), &comparison);
  CompareGauge("headroom", a.estimate().headroom(), b.estimate().headroom(), &comparison);
  if (a.has_step_time() && b.has_step_time()) {
    comparison.set_step_seconds_difference(b.step_time().seconds() - a.step_time().seconds());
  }
  return comparison;
}

}  // namespace plimsoll
