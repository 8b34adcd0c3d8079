// `plimsoll models` and `plimsoll gpus`.
#include <unistd.h>

#include "client/command/commands.h"
#include "client/format/json_writer.h"
#include "client/io/standard_streams.h"
#include "client/io/terminal.h"
#include "client/service/service.h"
#include "client/show/catalog_table.h"
#include "server/words/yaml_writer.h"

namespace plimsoll {
namespace {

// Prints a list in the format asked for; `items` are what it holds.
template <typename Response, typename Items>
ExitCode Print(const absl::StatusOr<Response>& response, const Items& items, const Output& output) {
  if (!response.ok()) return Fail(response.status());
  if (output.format == "json") return Finish(ToPrettyJson(*response), ExitCode::kDone);
  if (output.format == "yaml") return Finish(ToYaml(*response), ExitCode::kDone);
  if (output.format == "jsonl") {
    std::string lines;
    for (const auto& item : items(*response)) {
      AppendJson(item, &lines);
      lines += '\n';
    }
    return Finish(lines, ExitCode::kDone);
  }
  return Finish(ToTable(*response, DescribeTerminal(STDOUT_FILENO, output.color)), ExitCode::kDone);
}

}  // namespace

ExitCode RunModels(const ListCommand& command) {
  const absl::StatusOr<Service> service = OpenService(command.connection);
  if (!service.ok()) return Fail(service.status());
  return Print(
      service->client.ListModels(), [](const auto& list) -> auto& { return list.models(); },
      command.output);
}

ExitCode RunGpus(const ListCommand& command) {
  const absl::StatusOr<Service> service = OpenService(command.connection);
  if (!service.ok()) return Fail(service.status());
  return Print(
      service->client.ListGpus(), [](const auto& list) -> auto& { return list.gpus(); },
      command.output);
}

}  // namespace plimsoll
