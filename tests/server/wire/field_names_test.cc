// Names of fields: both spellings, and what a wrong one may have meant.
#include "server/wire/field_names.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "plimsoll/v1/planner.pb.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

void ExpectFound(const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    EXPECT_EQ(FindField(type, field->name()), field);
    EXPECT_EQ(FindField(type, field->json_name()), field);
    EXPECT_EQ(FindField(type, absl::StrCat(field->name(), "_")), nullptr);
    const Descriptor* const below = field->message_type();
    if (below != nullptr && below->file()->package() == type.file()->package()) ExpectFound(*below);
  }
}

TEST(FindFieldTest, TakesBothSpellingsOfEveryField) {
  ExpectFound(*v1::EstimateMemoryRequest::descriptor());
}

TEST(FindFieldTest, TakesNoOther) {
  for (const char* const name : {"", "SequenceLength", "SEQUENCE_LENGTH", "sequence-length",
                                 "sequencelength", " sequence_length"}) {
    EXPECT_EQ(FindField(*v1::Training::descriptor(), name), nullptr) << name;
  }
}

TEST(ExplainUnknownNameTest, SaysWhatMayBeMeant) {
  const Descriptor* const training = v1::Training::descriptor();
  const Descriptor* const runtime = v1::Runtime::descriptor();
  const struct {
    const Descriptor* type;
    const char* path;
    const char* name;
    const char* rule;
    const char* meant;
  } kCases[] = {
      {training, "job.training", "sequence_lenght", "no such field, did you mean sequence_length",
       "job.training.sequence_length"},
      {training, "job.training", "microBatchSiz", "no such field, did you mean micro_batch_size",
       "job.training.micro_batch_size"},
      {training, "job.training", "gpu_count", "no such field here, it is job.cluster.gpu_count",
       "job.cluster.gpu_count"},
      {training, "job.training", "gpuCount", "no such field here, it is job.cluster.gpu_count",
       "job.cluster.gpu_count"},
      {training, "job.training", "preset",
       "no such field here, it is job.training.precision.preset", "job.training.precision.preset"},
      {training, "job.training", "peft", "no such field here, it is job.training.adapter.method",
       "job.training.adapter.method"},
      {runtime, "job.runtime", "prefetch", "not modelled yet", ""},
      {training, "job.training", "seqLen", "no such field here, it is job.training.sequence_length",
       "job.training.sequence_length"},
      {training, "job.training", "gradient_checkpointing",
       "no such field here, it is job.training.recompute.mode", "job.training.recompute.mode"},
      {training, "job.training", "cpu_offload",
       "not modelled yet: what is moved to the host's memory", ""},
      {training, "job.training", "colour", "no such field", ""},
      {training, "job.training", "", "no such field", ""},
      {runtime, "job.runtime", "expandableSegments",
       "no such field here, it is job.runtime.allocator.expandable_segments",
       "job.runtime.allocator.expandable_segments"},
  };
  for (const auto& test : kCases) {
    const UnknownName unknown = ExplainUnknownName(
        *test.type, test.path, *v1::EstimateMemoryRequest::descriptor(), test.name);
    EXPECT_EQ(unknown.rule, test.rule) << test.name;
    EXPECT_EQ(unknown.meant, test.meant) << test.name;
    EXPECT_EQ(unknown.code == ViolationCode::kNotModelled,
              unknown.rule.rfind("not modelled yet", 0) == 0);
  }
}

TEST(ExplainUnknownNameTest, DoesNotLookForLongNames) {
  EXPECT_EQ(ExplainUnknownName(*v1::Training::descriptor(), "job.training",
                               *v1::EstimateMemoryRequest::descriptor(), std::string(100000, 'x'))
                .rule,
            "no such field");
}

// One letter more, fewer or other still leads to the field.
TEST(ExplainUnknownNameTest, KnowsSlipsOfTheFinger) {
  const Descriptor& type = *v1::Parallelism::descriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const std::string name = type.field(i)->name();
    const std::string rule = absl::StrCat("no such field, did you mean ", name);
    std::string other = name;
    other[name.size() / 2] = 'q';
    for (const std::string& slip : {name + "s", name.substr(0, name.size() - 1), other}) {
      EXPECT_EQ(ExplainUnknownName(type, "job.parallelism",
                                   *v1::EstimateMemoryRequest::descriptor(), slip)
                    .rule,
                rule)
          << slip;
    }
  }
}

}  // namespace
}  // namespace plimsoll
