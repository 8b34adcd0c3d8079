// Bytes, numbers and texts on the wire, each against a second way: what is put is got, what is
// taken out is put back, what is cut is cut where a slow reader would.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/message_differencer.h"
#include "plimsoll/v1/job.pb.h"
#include "plimsoll/v1/planner.pb.h"
#include "server/wire/field_value.h"
#include "server/wire/ordered_bytes.h"
#include "server/wire/shorten.h"
#include "server/wire/struct_numbers.h"
#include "tests/testing/random_message.h"

namespace plimsoll {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Struct;
using ::google::protobuf::Value;
using ::google::protobuf::util::MessageDifferencer;
using Random = std::mt19937_64;

// The same entries put in one by one, in another order.
template <typename Map>
void Reinsert(Random& random, Map* map) {
  std::vector<std::pair<std::string, typename Map::mapped_type>> entries;
  for (const auto& [key, value] : *map) entries.emplace_back(key, value);
  std::shuffle(entries.begin(), entries.end(), random);
  map->clear();
  for (const auto& [key, value] : entries) (*map)[key] = value;
}

TEST(OrderedBytesTest, OneMessageIsAlwaysTheSameBytes) {
  Random random(41);
  for (int i = 0; i < 50; ++i) {
    v1::Job job;
    FillAtRandom(random, &job);
    for (int key = 0; key < 20; ++key) {
      (*job.mutable_runtime()->mutable_versions())[absl::StrCat("k", random() % 1000)] = "1";
    }
    const std::string bytes = SerializeInOrder(job);
    v1::Job again = job;
    Reinsert(random, again.mutable_runtime()->mutable_versions());
    Reinsert(random, again.mutable_model()->mutable_hf_config()->mutable_fields());
    if (!job.model().has_hf_config()) *again.mutable_model() = job.model();
    if (!job.has_model()) again.clear_model();
    EXPECT_EQ(SerializeInOrder(again), bytes);
    v1::Job parsed;
    ASSERT_TRUE(parsed.ParseFromString(bytes));
    EXPECT_TRUE(MessageDifferencer::Equals(parsed, job));
    EXPECT_EQ(JsonInOrder(again, {}, "none"), JsonInOrder(job, {}, "none"));
  }
}

TEST(OrderedBytesTest, OptionsAreThoseOfTheLibrary) {
  v1::Job job;
  EXPECT_EQ(JsonInOrder(job, {}, "otherwise"), "{}");
  job.mutable_training()->set_sequence_length(8);
  EXPECT_EQ(JsonInOrder(job, {}, "otherwise"), R"({"training":{"sequenceLength":"8"}})");
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  EXPECT_EQ(JsonInOrder(job, options, "otherwise"), R"({"training":{"sequence_length":"8"}})");
}

// Every scalar of every field of a job, also in lists.
void ExpectGotAsPut(const Message& message) {
  const google::protobuf::Reflection& r = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(i);
    const int size =
        field->is_repeated() ? r.FieldSize(message, field) : (r.HasField(message, field) ? 1 : 0);
    if (field->message_type() != nullptr) {
      for (int at = 0; at < size && !field->is_map(); ++at) {
        ExpectGotAsPut(field->is_repeated() ? r.GetRepeatedMessage(message, field, at)
                                            : r.GetMessage(message, field));
      }
      continue;
    }
    const std::unique_ptr<Message> copy(message.New());
    for (int at = 0; at < size; ++at) PutValue(GetValue(message, field, at), field, copy.get());
    EXPECT_EQ(FieldText(*copy, field, ", "), FieldText(message, field, ", ")) << field->name();
    for (int at = 0; at < size; ++at) {
      EXPECT_EQ(GetValue(*copy, field, at), GetValue(message, field, at)) << field->name();
    }
  }
}

TEST(FieldValueTest, WhatIsPutIsGot) {
  Random random(42);
  for (int i = 0; i < 50; ++i) {
    v1::Job job;
    FillAtRandom(random, &job);
    job.clear_model();
    ExpectGotAsPut(job);
  }
}

TEST(FieldValueTest, WordsOfValues) {
  v1::Job job;
  const auto text = [](const Message& message, const char* name) {
    return FieldText(message, message.GetDescriptor()->FindFieldByName(name), "+");
  };
  v1::Training& training = *job.mutable_training();
  training.set_sequence_length(-5);
  training.set_gradient_clipping(false);
  training.mutable_adapter()->set_dropout(0.25);
  job.mutable_parallelism()->add_pipeline_layout(3);
  job.mutable_parallelism()->add_pipeline_layout(4);
  EXPECT_EQ(text(training, "sequence_length"), "-5");
  EXPECT_EQ(text(training, "gradient_clipping"), "false");
  EXPECT_EQ(text(training.adapter(), "dropout"), "0.25");
  EXPECT_EQ(text(job.parallelism(), "pipeline_layout"), "3+4");
  v1::EstimateMemoryResponse response;
  response.set_verdict(v1::VERDICT_AT_RISK);
  EXPECT_EQ(text(response, "verdict"), "VERDICT_AT_RISK") << "an enum's is its name";
}

// A configuration with a number that is none goes past JSON, and is there again.
TEST(StructNumbersTest, WhatIsTakenIsPutBack) {
  for (const double none :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    Value request;
    auto& model = *(*(*request.mutable_struct_value()->mutable_fields())["job"]
                         .mutable_struct_value()
                         ->mutable_fields())["model"]
                       .mutable_struct_value();
    Struct& config = *(*model.mutable_fields())["hf_config"].mutable_struct_value();
    auto& list = *(*config.mutable_fields())["nested"].mutable_list_value();
    list.add_values()->set_number_value(1);
    list.add_values()->set_number_value(none);
    const Struct before = config;
    ASSERT_TRUE(HoldsNoNumber(request));
    std::vector<TakenStruct> taken =
        TakeStructs(*v1::EstimateMemoryRequest::descriptor(), &request);
    ASSERT_EQ(taken.size(), 1u);
    EXPECT_FALSE(HoldsNoNumber(request)) << "the rest has a JSON form";
    v1::EstimateMemoryRequest message;
    PutStructs(std::move(taken), &message);
    EXPECT_EQ(message.job().model().hf_config().SerializeAsString().size(),
              before.SerializeAsString().size());
    const double put = message.job()
                           .model()
                           .hf_config()
                           .fields()
                           .at("nested")
                           .list_value()
                           .values(1)
                           .number_value();
    EXPECT_TRUE(std::isnan(none) ? std::isnan(put) : put == none);
  }
}

TEST(StructNumbersTest, NumbersStay) {
  Value request;
  (*request.mutable_struct_value()->mutable_fields())["job"].set_number_value(1e308);
  EXPECT_FALSE(HoldsNoNumber(request));
  EXPECT_TRUE(TakeStructs(*v1::EstimateMemoryRequest::descriptor(), &request).empty());
  Value list;
  list.mutable_list_value()->add_values()->set_number_value(NAN);
  EXPECT_TRUE(TakeStructs(*v1::Job::descriptor(), &list).empty()) << "no object, no message";
}

// A code point at the front of `text`, by the bits of RFC 3629; its bytes, or 0.
size_t CharacterByHand(const std::string& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80       ? 1
                        : byte(0) >> 5 == 6  ? 2
                        : byte(0) >> 4 == 14 ? 3
                        : byte(0) >> 3 == 30 ? 4
                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  uint32_t point = length == 1 ? byte(0) : byte(0) & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    point = point << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // what fewer bytes cannot say
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  return point >= kLeast[length] && point <= 0x10ffff && !surrogate ? length : 0;
}

bool IsUtf8ByHand(std::string text) {
  while (!text.empty()) {
    const size_t length = CharacterByHand(text);
    if (length == 0) return false;
    text.erase(0, length);
  }
  return true;
}

TEST(ShortenByHandTest, BytesAreUtf8OrNot) {
  Random random(43);
  int valid = 0;
  for (int i = 0; i < 50'000; ++i) {
    // Bytes at the edges of what each place may have.
    constexpr unsigned char kEdges[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0,
                                        0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed,
                                        0xee, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
    std::string text(1 + random() % 5, ' ');
    for (char& letter : text) letter = static_cast<char>(kEdges[random() % std::size(kEdges)]);
    ASSERT_EQ(IsUtf8(text), IsUtf8ByHand(text)) << ::testing::PrintToString(text);
    valid += IsUtf8(text) ? 1 : 0;
    const std::string shown = Shorten(text, 100);
    EXPECT_TRUE(IsUtf8(shown));
    if (IsUtf8(text)) {
      EXPECT_EQ(shown, text);
    }
  }
  EXPECT_GT(valid, 1000);
}

TEST(ShortenByHandTest, WhatIsCutIsABeginning) {
  Random random(44);
  const std::vector<std::string> pieces = {"a", "é", "€", "😀", "\xff", "-"};
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (uint64_t left = random() % 30; left > 0; --left) text += pieces[random() % pieces.size()];
    const size_t most = 3 + random() % 40;
    const std::string shown = Shorten(text, most);
    EXPECT_LE(shown.size(), most);
    EXPECT_TRUE(IsUtf8(shown)) << shown;
    const std::string whole = Shorten(text, 10'000);
    if (whole.size() <= most) {
      EXPECT_EQ(shown, whole);
      continue;
    }
    ASSERT_GE(shown.size(), 3u);
    EXPECT_EQ(shown.substr(shown.size() - 3), "...");
    const std::string kept = shown.substr(0, shown.size() - 3);
    EXPECT_EQ(whole.rfind(kept, 0), 0u);
    EXPECT_GT(kept.size() + 4 + 3, most) << "no character more would have had room";
  }
}

}  // namespace
}  // namespace plimsoll
