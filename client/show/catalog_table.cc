#include "client/show/catalog_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/io/text.h"
#include "server/wire/shorten.h"

namespace plimsoll {
namespace {

using Align = Columns::Align;

std::string FormatTeraflops(const v1::GpuInfo& gpu, const std::string& dtype) {
  const auto found = gpu.teraflops().find(dtype);
  return found == gpu.teraflops().end() ? "-" : absl::StrFormat("%g", found->second);
}

std::string FormatRate(int64_t bytes_per_second) {
  if (bytes_per_second == 0) return "-";
  return absl::StrFormat("%g", static_cast<double>(bytes_per_second) / 1e9);
}

}  // namespace

std::string ToTable(const v1::ListModelsResponse& response, const Terminal& terminal) {
  Columns columns({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
                   Align::kLeft, Align::kLeft});
  columns.Add(
      {"MODEL", "PARAMETERS", "LAYERS", "HIDDEN", "VOCABULARY", "TYPE", "HUGGING FACE IDS"});
  for (const v1::ModelInfo& model : response.models()) {
    columns.Add({Clean(model.name()), FormatCount(model.parameter_count()),
                 absl::StrCat(model.layer_count()), absl::StrCat(model.hidden_size()),
                 absl::StrCat(model.vocab_size()), Clean(model.model_type()),
                 model.hf_ids().empty() ? "-" : Clean(absl::StrJoin(model.hf_ids(), ", "))});
  }
  return columns.ToText(0, terminal.width);
}

std::string ToTable(const v1::ListGpusResponse& response, const Terminal& terminal) {
  Columns columns(
      {Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight, Align::kLeft});
  columns.Add({"GPU", "USABLE GIB", "GB/S", "BF16 TFLOPS", "LINK GB/S", "LINK"});
  for (const v1::GpuInfo& gpu : response.gpus()) {
    columns.Add({Clean(gpu.gpu()), FormatInGib(gpu.runtime_memory_bytes()),
                 FormatRate(gpu.memory_bandwidth_bytes_per_second()), FormatTeraflops(gpu, "bf16"),
                 FormatRate(gpu.interconnect_bytes_per_second()), Clean(gpu.interconnect())});
  }
  return columns.ToText(0, terminal.width);
}

}  // namespace plimsoll
