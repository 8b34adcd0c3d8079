#include "estimator/catalog/capabilities.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace plimsoll {
namespace {

constexpr size_t kFrameworkCount = static_cast<size_t>(Framework::kNanotron) + 1;
constexpr size_t kTrainerCount = static_cast<size_t>(Trainer::kNemoAutomodel) + 1;
constexpr int kNewest = kNoVersion - 1;  // later than each `since`, and each `until`

// What a trainer is made of; rows of that hold as its newest release has them.
Trainer BaseOf(Trainer trainer) { return trainer == Trainer::kTrl ? Trainer::kHfTrainer : trainer; }

bool IsOn(const CapabilityRow& row, Framework framework) {
  return (row.frameworks >> static_cast<unsigned>(framework) & 1) != 0;
}

bool IsOf(const CapabilityRow& row, Framework framework, Trainer trainer) {
  const bool of_base = !row.its_own && row.trainer == BaseOf(trainer);
  return (row.trainer == trainer || of_base) && IsOn(row, framework);
}

bool Holds(const CapabilityRow& row, int version) {
  const int exact = version < 0 ? kNewest : version;
  return exact >= row.since && exact < row.until;
}

using RowIndices = std::array<uint8_t, kAbilityCount>;

void Apply(size_t index, const CapabilityRow& row, RowIndices& rows) {
  row.what.ForEach([&](Ability ability) {
    rows[static_cast<size_t>(ability)] = static_cast<uint8_t>(index + 1);
  });
}

Support SupportOf(uint8_t index) {
  return index == 0 ? Support::kLacks : CapabilityRows()[index - 1u].support;
}

// What a trainer's rows say holds where they allow less than the framework, and where they have it.
void Change(const RowIndices& trainer, RowIndices& rows) {
  for (size_t i = 0; i < kAbilityCount; ++i) {
    if (trainer[i] == 0) continue;
    const Support support = SupportOf(trainer[i]);
    if (support == Support::kHas || support < SupportOf(rows[i])) rows[i] = trainer[i];
  }
}

RowIndices Resolve(Framework framework, int framework_version, Trainer trainer,
                   int trainer_version) {
  RowIndices rows{};
  RowIndices of_trainer{};
  const absl::Span<const CapabilityRow> all = CapabilityRows();
  for (size_t i = 0; i < all.size(); ++i) {
    if (IsOf(all[i], framework, Trainer::kNone)) {
      if (Holds(all[i], framework_version)) Apply(i, all[i], rows);
    } else if (IsOf(all[i], framework, trainer) &&
               Holds(all[i], all[i].trainer == trainer ? trainer_version : kAnyVersion)) {
      Apply(i, all[i], of_trainer);
    }
  }
  Change(of_trainer, rows);
  return rows;
}

// Of the newest versions, as nearly all jobs ask for.
const RowIndices& Newest(Framework framework, Trainer trainer) {
  static const auto* const kAll = [] {
    auto* all = new std::array<RowIndices, kFrameworkCount * kTrainerCount>;
    for (size_t i = 0; i < all->size(); ++i) {
      (*all)[i] = Resolve(static_cast<Framework>(i / kTrainerCount), kAnyVersion,
                          static_cast<Trainer>(i % kTrainerCount), kAnyVersion);
    }
    return all;
  }();
  return (*kAll)[static_cast<size_t>(framework) * kTrainerCount + static_cast<size_t>(trainer)];
}

// The first version that has what older ones lack; nothing where none has.
std::optional<int> FirstVersionWith(Ability ability, const Profile& profile, Trainer trainer) {
  for (const CapabilityRow& row : CapabilityRows()) {
    const bool says = row.trainer == trainer && IsOn(row, profile.framework);
    if (!says || !row.what.Has(ability)) continue;
    if (row.support == Support::kHas) return row.since;
    if (row.trainer != Trainer::kNone && row.until != kNoVersion) return row.until;
  }
  return std::nullopt;
}

std::string Because(absl::string_view why) { return why.empty() ? "" : absl::StrCat(": ", why); }

}  // namespace

Support Capabilities::Of(Ability ability) const {
  return SupportOf(rows_[static_cast<size_t>(ability)]);
}

const CapabilityRow* Capabilities::RowOf(Ability ability) const {
  const uint8_t index = rows_[static_cast<size_t>(ability)];
  return index == 0 ? nullptr : &CapabilityRows()[index - 1u];
}

Capabilities Capabilities::operator|(const Capabilities& other) const {
  Capabilities both = *this;
  for (size_t i = 0; i < kAbilityCount; ++i) {
    if (SupportOf(other.rows_[i]) > SupportOf(rows_[i])) both.rows_[i] = other.rows_[i];
  }
  return both;
}

Capabilities CapabilitiesOf(Framework framework, int framework_version, Trainer trainer,
                            int trainer_version) {
  Capabilities capabilities;
  const bool newest = framework_version < 0 && trainer_version < 0;
  capabilities.rows_ = newest ? Newest(framework, trainer)
                              : Resolve(framework, framework_version, trainer, trainer_version);
  return capabilities;
}

Capabilities AllCapabilities() {
  Capabilities all;
  for (size_t i = 0; i < kAbilityCount; ++i) {
    const absl::Span<const CapabilityRow> rows = CapabilityRows();
    for (size_t row = 0; row < rows.size(); ++row) {
      const bool has = rows[row].support == Support::kHas;
      const bool this_one = has && rows[row].what.Has(static_cast<Ability>(i));
      const bool first = rows[row].trainer == Trainer::kNone || all.rows_[i] == 0;
      if (this_one && first) all.rows_[i] = static_cast<uint8_t>(row + 1);
    }
  }
  return all;
}

Denial DenialOf(const Capabilities& capabilities, Ability ability, const Profile& profile) {
  const CapabilityRow* const row = capabilities.RowOf(ability);
  const Trainer trainer = row == nullptr ? Trainer::kNone : row->trainer;
  const bool of_trainer = trainer != Trainer::kNone;
  const absl::string_view who = of_trainer ? profile.trainer_name : profile.name;
  const absl::string_view why = row == nullptr ? "" : row->why;
  if (row != nullptr && row->support == Support::kNotModelled) {
    return {ViolationCode::kNotModelled, absl::StrCat("is not modelled with ", who, Because(why)),
            of_trainer};
  }
  const std::optional<int> since = FirstVersionWith(ability, profile, trainer);
  std::string rule = since.has_value() && *since > 0
                         ? absl::StrCat(who, " has it from ", VersionText(*since), " on")
                         : absl::StrCat(who, " does not have it", Because(why));
  return {ViolationCode::kNotSupported, std::move(rule), of_trainer};
}

std::string VersionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000); }

}  // namespace plimsoll
