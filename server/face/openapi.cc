#include "server/face/openapi.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.pb.h"
#include "server/face/openapi_schema.h"
#include "server/wire/version.h"

namespace plimsoll {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::MethodDescriptor;

constexpr char kAbout[] =
    "Names of fields are lowerCamelCase here; requests may have them in snake_case too, as "
    "descriptions and job files do. 64-bit integers are strings; requests may have numbers. "
    "Unknown fields are refused. A refusal is a google.rpc.Status that lists everything that is "
    "wrong, with the fields as the caller wrote them.";

// What a method answers besides 200.
struct CodeRow {
  const char* code;
  const char* description;
};
constexpr CodeRow kCodes[] = {
    {"400", "The request breaks rules: all of them are listed."},
    {"413", "The request is over 1 MiB."},
    {"429", "Too many requests are in flight; Retry-After says in how many seconds to come back."},
    {"default", "Another refusal."},
};

// A path that is no method.
struct PageRow {
  const char* path;
  const char* name;
  const char* summary;
  const char* type;
  const char* ok;
  const char* unavailable;  // what 503 means; null where it is never sent
};
constexpr PageRow kPages[] = {
    {"/metrics", "GetMetrics", "What the server counts, in Prometheus's text format.", "text/plain",
     "Every series.", nullptr},
    {"/healthz", "GetHealth", "Whether the server is alive.", "text/plain", "It is.", nullptr},
    {"/readyz", "GetReadiness", "Whether the server wants requests.", "text/plain", "It does.",
     "It is about to stop."},
    {"/openapi.json", "GetOpenApi", "This document.", "application/json", "The document.", nullptr},
};

// Requests that are answered with 200.
struct ExampleRow {
  const char* method;
  const char* request;
};
#define EXAMPLE_JOB                                                                 \
  R"("job":{"model":{"name":"llama-3.1-8b"},"training":{"sequenceLength":"8192"},)" \
  R"("parallelism":{"zeroStage":"3"},"runtime":{"framework":"fsdp2"},)"             \
  R"("cluster":{"gpu":"h100-80gb-sxm","gpuCount":"8"}})"
constexpr ExampleRow kExamples[] = {
    {"EstimateMemory", "{" EXAMPLE_JOB "}"},
    {"BatchEstimateMemory", R"({"requests":[{)" EXAMPLE_JOB "},{" EXAMPLE_JOB R"(,"risk":0.05}]})"},
    {"RecommendConfig", "{" EXAMPLE_JOB R"(,"gpuCounts":["4","8"],"maxResults":"3"})"},
    {"Admit",
     R"({"schedulerRequest":{"partition":"train"},)" EXAMPLE_JOB R"(,"resizeAllowed":true})"},
    {"ReportUsage", R"({"jobId":"4711","prediction":{"verdict":"VERDICT_FITS",)"
                    R"("device":{"expectedBytes":"60000000000","boundBytes":"66000000000"}},)"
                    R"("actualPeakBytes":["61000000000"],"outcome":"finished"})"},
    {"ListModels", "{}"},
    {"ListGpus", "{}"},
};
#undef EXAMPLE_JOB

std::string PlaceOf(const CodeRow& row) {
  return absl::StrCat("#/components/responses/", row.code);
}

// The first sentence.
std::string SummaryOf(const std::string& text) {
  const size_t end = std::min(text.find(". "), text.find(".\n"));
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

// `example` may be null.
void WriteContent(const std::string& schema, const char* example, JsonOut* to) {
  to->Object("content", [&] {
    to->Object("application/json", [&] {
      to->Raw("schema", schema);
      if (example != nullptr) to->Raw("example", example);
    });
  });
}

const char* ExampleOf(const MethodDescriptor& method) {
  const auto* const row =
      std::find_if(std::begin(kExamples), std::end(kExamples),
                   [&](const ExampleRow& one) { return method.name() == one.method; });
  return row == std::end(kExamples) ? nullptr : row->request;
}

// What a method answers, by HTTP's codes.
void WriteAnswers(const MethodDescriptor& method, JsonOut* to) {
  to->Object("200", [&] {
    to->Text("description", CommentOf(*method.output_type()));
    WriteContent(ReferenceTo(*method.output_type()), nullptr, to);
  });
  for (const CodeRow& row : kCodes) {
    to->Object(row.code, [&] { to->Text("$ref", PlaceOf(row)); });
  }
}

void WriteMethod(const MethodDescriptor& method, JsonOut* to) {
  const std::string comment = CommentOf(method);
  to->Text("operationId", method.name());
  to->Text("summary", SummaryOf(comment));
  to->Text("description", comment);
  to->Object("requestBody", [&] {
    to->Bool("required", method.input_type()->field_count() > 0);
    WriteContent(ReferenceTo(*method.input_type()), ExampleOf(method), to);
  });
  to->Object("responses", [&] { WriteAnswers(method, to); });
}

void WritePageAnswer(const PageRow& page, const char* description, JsonOut* to) {
  to->Text("description", description);
  to->Object("content", [&] { to->Object(page.type, [] {}); });
}

void WritePage(const PageRow& page, JsonOut* to) {
  to->Text("operationId", page.name);
  to->Text("summary", page.summary);
  to->Object("responses", [&] {
    to->Object("200", [&] { WritePageAnswer(page, page.ok, to); });
    if (page.unavailable == nullptr) return;
    to->Object("503", [&] { WritePageAnswer(page, page.unavailable, to); });
  });
}

void WritePaths(const OpenApiSource& source, JsonOut* to) {
  for (const MethodName& name : source.methods) {
    const auto write = [&] { WriteMethod(*source.service->FindMethodByName(name.grpc), to); };
    to->Object(name.path, [&] { to->Object("post", write); });
  }
  for (const PageRow& page : kPages) {
    const auto write = [&] { WritePage(page, to); };
    to->Object(page.path, [&] { to->Object("get", write); });
  }
}

void WriteTypeName(const Descriptor& type, JsonOut* to) {
  const std::string name = absl::StrCat("type.googleapis.com/", type.full_name());
  to->List("required", [&] { to->Text("@type"); });
  to->Object("properties", [&] { to->Object("@type", [&] { to->Text("const", name); }); });
}

// A detail is a message with its type's name beside its fields.
void WriteDetail(const Descriptor& detail, JsonOut* to) {
  to->List("allOf", [&] {
    to->Raw(ReferenceTo(detail));
    to->Object([&] { WriteTypeName(detail, to); });
  });
}

void WriteDetails(const OpenApiSource& source, JsonOut* to) {
  for (const Descriptor* const detail : source.details) {
    to->Object([&] { WriteDetail(*detail, to); });
  }
}

// Returns, as JSON, what the schema of a refusal adds to a status's: the types of its details.
std::string KnownDetails(const OpenApiSource& source) {
  JsonOut items;
  items.Object([&] { items.List("anyOf", [&] { WriteDetails(source, &items); }); });
  return absl::StrCat(R"({"properties":{"details":{"items":)", items.Take(), "}}}");
}

// The schema of a refusal: a status whose details are of known types.
void WriteError(const OpenApiSource& source, JsonOut* to) {
  to->List("allOf", [&] {
    to->Raw(ReferenceTo(*source.status));
    to->Raw(KnownDetails(source));
  });
}

void WriteRefusal(const CodeRow& row, JsonOut* to) {
  to->Text("description", row.description);
  if (absl::string_view(row.code) == "429") {
    to->Object("headers", [&] {
      to->Raw("Retry-After", R"({"description":"Seconds.","schema":{"type":"integer"}})");
    });
  }
  WriteContent(R"({"$ref":"#/components/schemas/Error"})", nullptr, to);
}

void WriteComponents(const OpenApiSource& source, JsonOut* to) {
  SchemaTypes types;
  for (const MethodName& name : source.methods) {
    types.Add(*source.service->FindMethodByName(name.grpc)->input_type());
    types.Add(*source.service->FindMethodByName(name.grpc)->output_type());
  }
  types.Add(*source.status);
  for (const Descriptor* const detail : source.details) types.Add(*detail);
  to->Object("responses", [&] {
    for (const CodeRow& row : kCodes) to->Object(row.code, [&] { WriteRefusal(row, to); });
  });
  to->Object("schemas", [&] {
    to->Object("Error", [&] { WriteError(source, to); });
    types.Write(to);
  });
}

std::string MakeDocument() {
  google::protobuf::FileDescriptorSet files;
  const absl::string_view bytes = EmbeddedDescriptors();
  files.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  DescriptorPool pool;
  for (const auto& file : files.file()) pool.BuildFile(file);
  OpenApiSource source = {.service = pool.FindServiceByName(kServiceName),
                          .methods = {kMethodNames.begin(), kMethodNames.end()},
                          .version = Version(),
                          .status = pool.FindMessageTypeByName("google.rpc.Status"),
                          .details = {}};
  for (const char* const detail : {"google.rpc.BadRequest", "google.rpc.ErrorInfo",
                                   "google.rpc.RetryInfo", "plimsoll.v1.RefusedFields"}) {
    source.details.push_back(pool.FindMessageTypeByName(detail));
  }
  return WriteOpenApi(source);
}

}  // namespace

std::string WriteOpenApi(const OpenApiSource& source) {
  JsonOut out;
  out.Object([&] {
    out.Text("openapi", "3.1.0");
    out.Object("info", [&] {
      out.Text("title", "Plimsoll");
      out.Text("version", source.version);
      out.Text("description", absl::StrCat(CommentOf(*source.service), "\n\n", kAbout));
      out.Raw("license", R"({"name":"Apache License 2.0","identifier":"Apache-2.0"})");
    });
    out.List("servers", [&] { out.Raw(R"({"url":"/"})"); });
    out.Object("paths", [&] { WritePaths(source, &out); });
    out.Object("components", [&] { WriteComponents(source, &out); });
  });
  return out.Take();
}

const std::string& OpenApiDocument() {
  static const auto* const kDocument = new std::string(MakeDocument());
  return *kDocument;
}

}  // namespace plimsoll
