// The flags of `plimsoll report`.
#include <CLI/CLI.hpp>

#include "client/job/output_flags.h"
#include "client/report/report_command.h"

namespace plimsoll {
namespace {

void AddJob(CLI::App* app, ReportCommand* command) {
  app->add_option("--job-id", command->job_id, "The scheduler's id of the job")->type_name("ID");
  app->add_option("--prediction", command->prediction,
                  "What was predicted, in JSON, as Slurm's AdminComment has it; - is standard "
                  "input; without it, PLIMSOLL_PREDICTION of the environment")
      ->type_name("FILE");
  app->add_option("--outcome", command->outcome, "How the job ended (finished)")
      ->type_name("{finished,out-of-memory,other}")
      ->check(CLI::IsMember({"finished", "out-of-memory", "other"}).description(""));
}

void AddPrometheus(CLI::App* app, ReportCommand* command) {
  app->add_option("--prometheus", command->prometheus,
                  "Prometheus that has DCGM's DCGM_FI_DEV_FB_USED by hpc_job, as "
                  "http://localhost:9090")
      ->type_name("URL");
  app->add_option("--start", command->start,
                  "When the job began, as 2026-11-21T22:10:00Z or in seconds since 1970")
      ->type_name("TIME");
  app->add_option("--end", command->end, "When it ended (now)")->type_name("TIME");
  app->add_option("--window", command->window,
                  "How far before its end to look, where --start is not known (30d)")
      ->type_name("DURATION");
  app->add_option("--wait", command->wait, "How long to wait for the first data (0s)")
      ->type_name("DURATION");
  app->add_option("--pod", command->pod, "Look for this pod instead of --job-id")
      ->type_name("NAMESPACE/POD");
  app->add_option("--query", command->query,
                  "PromQL of another exporter: the peak of each GPU, in bytes")
      ->type_name("PROMQL");
}

void AddOtherSources(CLI::App* app, ReportCommand* command) {
  app->add_option("--actual", command->actual,
                  "The peak of each GPU with its unit, one a line, as 62464 MiB (as nvidia-smi "
                  "prints it), or as a JSON list; - is standard input")
      ->type_name("FILE");
  app->add_option("--peak", command->peaks, "The peak of one GPU, as 61.5GiB; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("BYTES");
  app->add_option("--gauge", command->gauge, "What was measured (device)")
      ->type_name("{allocated,reserved,device}")
      ->check(CLI::IsMember({"allocated", "reserved", "device"}).description(""));
  app->add_option("--source", command->source,
                  "How it was read (dcgm with --prometheus, else other)")
      ->type_name("{dcgm,nvidia-smi,torch,slurm,other}")
      ->check(CLI::IsMember({"dcgm", "nvidia-smi", "torch", "slurm", "other"}).description(""));
}

}  // namespace

void AddReportFlags(CLI::App* app, ReportCommand* command) {
  AddJob(app, command);
  AddPrometheus(app, command);
  AddOtherSources(app, command);
  app->add_option("--rows", command->rows,
                  "Also append the job to this CSV file, to calibrate from")
      ->type_name("FILE");
  app->add_option("--server", command->connection.server,
                  "Service that counts the report, as unix:/path; it must run with "
                  "--accept-reports")
      ->envname("PLIMSOLL_SERVER")
      ->type_name("ADDRESS");
  app->add_option("--timeout", command->connection.timeout,
                  "How long to wait for the service, and for Prometheus")
      ->type_name("DURATION")
      ->capture_default_str();
  AddFormatFlag(app, {"table", "json", "yaml", "jsonl"}, &command->output);
}

}  // namespace plimsoll
