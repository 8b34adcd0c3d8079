// The flags of `plimsoll measure`.
#include <CLI/CLI.hpp>

#include "client/job/output_flags.h"
#include "client/measure/measure_command.h"

namespace plimsoll {

void AddMeasureFlags(CLI::App* app, MeasureCommand* command) {
  app->add_option("--gpu", command->gpu, "The GPU to stand in for, as h100-80gb-sxm")
      ->type_name("GPU");
  app->add_option("--gpus", command->rank.count, "How many ranks the job has (1)")->type_name("N");
  app->add_option("--rank", command->rank.rank, "Which of them is run (0)")->type_name("N");
  app->add_option("--steps", command->step_count,
                  "End the command after so many steps of its optimizer (when it does)")
      ->type_name("N");
  app->add_option("--job", command->job_file,
                  "Write the run as a job file, for `plimsoll estimate`, `admit` and `submit`")
      ->type_name("FILE");
  AddFormatFlag(app, {"table", "json"}, &command->output);
  AddColorFlag(app, &command->output);
}

}  // namespace plimsoll
