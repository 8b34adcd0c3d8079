#include "client/command/command_line.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/command/commands.h"
#include "client/command/completion.h"
#include "client/command/help.h"
#include "client/io/standard_streams.h"
#include "client/job/flag_words.h"
#include "client/job/job_flags.h"
#include "client/job/options.h"
#include "client/job/output_flags.h"
#include "client/measure/measure_command.h"
#include "client/report/report_command.h"
#include "server/run/flags.h"
#include "server/run/run.h"
#include "server/wire/version.h"

namespace plimsoll {
namespace {

void AddTlsFlags(CLI::App* command, Connection* connection) {
  CLI::Option* const ca =
      command
          ->add_option("--tls-ca", connection->tls_ca,
                       "TLS to --server, unless that is a unix socket: its authorities (PEM), or "
                       "`system` for those of this system")
          ->envname("PLIMSOLL_TLS_CA")
          ->type_name("FILE");
  CLI::Option* const certificate =
      command
          ->add_option("--tls-certificate", connection->tls_certificate,
                       "Certificate to show it (PEM)")
          ->envname("PLIMSOLL_TLS_CERTIFICATE")
          ->type_name("FILE")
          ->needs(ca);
  CLI::Option* const key =
      command->add_option("--tls-key", connection->tls_key, "Its private key (PEM)")
          ->envname("PLIMSOLL_TLS_KEY")
          ->type_name("FILE")
          ->needs(certificate);
  certificate->needs(key);
  command
      ->add_option("--token-file", connection->token_file, "File with a token to send it over TLS")
      ->envname("PLIMSOLL_TOKEN_FILE")
      ->type_name("FILE")
      ->needs(ca);
}

void AddConnectionFlags(CLI::App* command, Connection* connection,
                        const char* timeout_help = "How long to wait for an answer (10s)") {
  command
      ->add_option(
          "--server", connection->server,
          "Service to ask, as host:50051 or unix:/path, several with commas: each after those "
          "that are out of reach; without it, one in this process")
      ->envname("PLIMSOLL_SERVER")
      ->type_name("ADDRESS");
  command
      ->add_option("--calibration", connection->calibration,
                   "Table of upper bounds for the service in this process, instead of its own")
      ->envname("PLIMSOLL_CALIBRATION")
      ->type_name("FILE");
  command
      ->add_option("--speed", connection->speed,
                   "Table of speeds for the service in this process, instead of its own")
      ->envname("PLIMSOLL_SPEED")
      ->type_name("FILE");
  command->add_option("--timeout", connection->timeout, timeout_help)->type_name("DURATION");
  AddTlsFlags(command, connection);
}

void AddOutputFlags(CLI::App* command, Output* output) {
  AddFormatFlag(command, {"table", "json", "yaml", "jsonl"}, output);
  AddColorFlag(command, output);
}

CLI::App* AddCommand(CLI::App* app, const char* name, const char* about, const char* footer) {
  CLI::App* command = app->add_subcommand(name, about);
  command->footer(std::string("\n") + footer);
  return command;
}

// One job, or one request a line.
void AddJobSources(CLI::App* command, absl::string_view request, std::string* job_file,
                   std::string* jobs_file) {
  command
      ->add_option("job", *job_file,
                   "A job in YAML or JSON, or a script with #PLIMSOLL lines; - is standard input")
      ->type_name("FILE");
  command
      ->add_option("--jobs", *jobs_file,
                   absl::StrCat("One ", request,
                                " in JSON per line; one answer per line; - is standard input"))
      ->type_name("FILE");
}

void AddRiskFlag(CLI::App* command, std::optional<double>* risk) {
  command->add_option("--risk", *risk, "Chance that an upper bound is exceeded (0.01)")
      ->type_name("P");
}

// `what`, of which the detail is: "memory is".
void AddDetailFlag(CLI::App* command, absl::string_view what, std::string* detail) {
  command
      ->add_option(
          "--detail", *detail,
          absl::StrCat("How the ", what,
                       " made: in closed form, or by a replay of the first steps (replay)"))
      ->type_name("{summary,replay}")
      ->check(CLI::IsMember({"summary", "replay"}).description(""));
}

void AddEstimate(CLI::App* app, EstimateCommand* options) {
  CLI::App* command =
      AddCommand(app, "estimate", "Say where a job's memory goes, and if it fits", kEstimateFooter);
  AddJobSources(command, "EstimateMemoryRequest", &options->job_file, &options->jobs_file);
  AddRiskFlag(command, &options->risk);
  command->add_flag(
      "--explain", options->explain,
      "Also what is largest at the peak, every kind of tensor, and what each pass left");
  command
      ->add_option("--timeline", options->timeline_file,
                   "Also draw the memory of one step: a picture (.svg), a page (.html) or data "
                   "(.json)")
      ->type_name("FILE");
  AddDetailFlag(command, "figures are", &options->detail);
  AddOutputFlags(command, &options->output);
  AddConnectionFlags(command, &options->connection);
  AddJobFlags(command, &options->settings);
}

void AddDiff(CLI::App* app, DiffCommand* options) {
  CLI::App* command = AddCommand(app, "diff", "Show two jobs side by side", kDiffFooter);
  command->add_option("a", options->first, "A job in YAML or JSON; - is standard input")
      ->type_name("FILE");
  command->add_option("b", options->second, "Another (the first, with the flags)")
      ->type_name("FILE");
  AddRiskFlag(command, &options->risk);
  AddDetailFlag(command, "memory is", &options->detail);
  AddOutputFlags(command, &options->output);
  AddConnectionFlags(command, &options->connection);
  AddJobFlags(command, &options->settings);
}

// Flags that may be repeated and hold lists with commas.
CLI::Option* AddListFlag(CLI::App* command, const char* flag, std::vector<std::string>* values,
                         const char* about) {
  return command->add_option(flag, *values, about)
      ->expected(1)
      ->allow_extra_args(false)  // what comes next may be the job file
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// What to search, and what is best.
void AddSearchFlags(CLI::App* command, RecommendCommand* options) {
  command->add_option("--objective", options->objective, "What is best (fastest)")
      ->type_name("{fastest,fewest-gpus,cheapest,smallest-change}");
  command
      ->add_option("--gpus", options->gpu_counts,
                   "Numbers of GPUs to consider, as 8..512 (whole nodes, and powers of two below "
                   "one) or 8,16,64 (the job's)")
      ->type_name("RANGE");
  AddListFlag(command, "--gpu", &options->gpus,
              "GPUs to consider, as h100-80gb-sxm,h200 (the job's)")
      ->type_name("GPU");
  AddListFlag(command, "--freeze", &options->frozen,
              "Fields that keep the job's value, as training.recompute; `*` is all")
      ->type_name("PATH");
  AddListFlag(command, "--allow", &options->allowed_changes,
              "The only fields that may change, as parallelism.zero_stage (all)")
      ->type_name("PATH");
  AddListFlag(command, "--price", &options->prices,
              "Price of an hour of a GPU, as h100-80gb-sxm=2.5")
      ->type_name("GPU=PRICE");
  command->add_option("--max-results", options->max_results, "The most candidates to show (5)")
      ->type_name("N");
  AddRiskFlag(command, &options->risk);
  AddDetailFlag(command, "memory of what is shown is", &options->detail);
}

void AddRecommend(CLI::App* app, RecommendCommand* options) {
  CLI::App* command =
      AddCommand(app, "recommend", "Search the sharding that fits and is best", kRecommendFooter);
  AddJobSources(command, "RecommendConfigRequest", &options->job_file, &options->jobs_file);
  AddSearchFlags(command, options);
  command->add_flag("--explain", options->explain,
                    "Also each field that the best changes, and where its time goes");
  command
      ->add_option("--plot", options->plot_file,
                   "Also draw time against memory of what fits: a picture (.svg)")
      ->type_name("FILE");
  AddOutputFlags(command, &options->output);
  AddConnectionFlags(command, &options->connection);
  AddJobFlags(command, &options->settings, /*except=*/"--gpu");
}

void AddAdmit(CLI::App* app, AdmitCommand* options) {
  CLI::App* command = AddCommand(app, "admit", "Decide whether a job may be queued", kAdmitFooter);
  CLI::Option* const job =
      command
          ->add_option(
              "job", options->job_file,
              "A job in YAML or JSON, or a script with #PLIMSOLL lines; - is standard input")
          ->type_name("FILE");
  command
      ->add_option("--scheduler-request", options->scheduler_request,
                   "What the scheduler knows of a submission: a SchedulerRequest in JSON; - is "
                   "standard input")
      ->type_name("FILE")
      ->excludes(job);
  command
      ->add_option("--policy", options->policy,
                   "Rules, an AdmissionPolicy in YAML; without it the service's own")
      ->envname("PLIMSOLL_POLICY")
      ->type_name("FILE");
  command->add_option("--partition", options->partition, "The partition of a job file")
      ->type_name("NAME")
      ->needs(job);
  command->add_option("--namespace", options->name_space, "The namespace of a job file")
      ->type_name("NAME")
      ->needs(job);
  command
      ->add_flag("--resizable", options->resize_allowed,
                 "The job of a file reads PLIMSOLL_ variables, so it may be changed")
      ->needs(job);
  command->add_flag("--inline", options->refuse_files,
                    "Read no file that the request names: where the caller has rights that its "
                    "user lacks");
  command->add_flag("--print-words", options->print_words,
                    "Decide nothing: print what the request says to Plimsoll in one line, files "
                    "read, as PLIMSOLL_JOB takes it");
  AddOutputFlags(command, &options->output);
  AddConnectionFlags(command, &options->connection,
                     "How long to wait for an answer (80ms of a server, so that a decision takes "
                     "100ms; else 10s)");
}

void AddSubmit(CLI::App* app, SubmitCommand* options) {
  CLI::App* command = AddCommand(app, "submit", "Estimate a job, then submit it", kSubmitFooter);
  command
      ->add_option("job", options->job_file,
                   "A job in YAML or JSON, or a script with #PLIMSOLL lines")
      ->type_name("FILE");
  command->add_flag("--yes", options->yes,
                    "Where the job does not fit, submit it with the smallest change that does");
  command->add_flag("--as-is", options->as_is, "Submit it as it is, even where it does not fit");
  AddListFlag(command, "--allow", &options->allowed_changes,
              "Fields that may be changed, as parallelism.zero_stage (all but the GPUs)")
      ->type_name("PATH");
  AddRiskFlag(command, &options->risk);
  AddConnectionFlags(command, &options->connection);
  AddJobFlags(command, &options->settings);
}

void AddCatalogList(CLI::App* app, const char* name, const char* about, const char* footer,
                    ListCommand* options) {
  CLI::App* command = AddCommand(app, name, about, footer);
  AddOutputFlags(command, &options->output);
  AddConnectionFlags(command, &options->connection);
}

// Everything that the command line may say.
struct CommandLine {
  CommandLine() : app(kAbout, "plimsoll") {
    app.set_version_flag("--version", std::string("plimsoll ") + Version());
    app.require_subcommand(1);
    app.footer(std::string("\n") + kFooter);
    AddEstimate(&app, &estimate);
    AddRecommend(&app, &recommend);
    AddDiff(&app, &diff);
    AddAdmit(&app, &admit);
    AddSubmit(&app, &submit);
    AddReportFlags(
        AddCommand(&app, "report", "Say what a job used against what was predicted", kReportFooter),
        &report);
    AddMeasureFlags(
        AddCommand(&app, "measure", "Run a command on a GPU that is not there: what it would hold",
                   kMeasureFooter),
        &measure);
    AddCatalogList(&app, "models", "List the models that have a name", kModelsFooter, &models);
    AddCatalogList(&app, "gpus", "List the GPUs that have an id", kGpusFooter, &gpus);
    server_flags.emplace(AddCommand(&app, "serve", "Serve over gRPC and HTTP", kServeFooter));
    AddCommand(&app, "completion", "Print a script for shell completion", kCompletionFooter)
        ->add_option("shell", shell, "The shell")
        ->type_name("{bash,zsh,fish}")
        ->check(CLI::IsMember({"bash", "zsh", "fish"}).description(""))
        ->required();
  }

  CLI::App app;
  EstimateCommand estimate;
  RecommendCommand recommend;
  DiffCommand diff;
  AdmitCommand admit;
  SubmitCommand submit;
  ReportCommand report;
  MeasureCommand measure;
  ListCommand models;
  ListCommand gpus;
  std::optional<ServerFlags> server_flags;
  std::string shell;
};

std::string CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return absl::StrJoin(names, ", ");
}

// Help and version go to standard output, everything else is a mistake.
ExitCode Explain(const CommandLine& line, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    line.app.exit(error);
    return ExitCode::kDone;
  }
  std::string command = "plimsoll";
  for (const CLI::App* given : line.app.get_subcommands()) command += " " + given->get_name();
  const std::vector<std::string> unknown = line.app.remaining();
  const bool no_command = line.app.get_subcommands().empty() && !unknown.empty();
  std::string message = error.what();
  if (no_command) {
    message = "command: " + unknown[0] + "; must be one of " + CommandNames(line.app);
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    message = absl::StrJoin(line.app.remaining(/*recurse=*/true), " ") + "; not expected here";
  }
  Say(absl::StrCat(message, "\nSee ", command, " --help"));
  return ExitCode::kBadInput;
}

// What comes after the first `--` of `plimsoll submit` or `plimsoll measure` is another program's.
std::vector<std::string> TakeCommand(int* argc, char** argv) {
  std::vector<std::string> command;
  const std::string name = *argc < 2 ? "" : argv[1];
  if (name != "submit" && name != "measure") return command;
  for (int i = 2; i < *argc; ++i) {
    if (std::string(argv[i]) != "--") continue;
    command.assign(argv + i + 1, argv + *argc);
    *argc = i;
  }
  return command;
}

ExitCode PrintCompletion(const CommandLine& line) {
  const std::vector<CompletionCommand> rows = CompletionRows(line.app);
  return Finish(line.shell == "zsh"    ? ZshCompletion(rows)
                : line.shell == "fish" ? FishCompletion(rows)
                                       : BashCompletion(rows),
                ExitCode::kDone);
}

}  // namespace

ExitCode RunCommandLine(int argc, char** argv) {
  CommandLine line;
  line.submit.command = line.measure.command = TakeCommand(&argc, argv);
  ServerOptions server_options;
  try {
    const absl::StatusOr<std::vector<std::string>> flags =
        TranslateFlags(line.app, std::vector<std::string>(argv + 1, argv + argc));
    if (!flags.ok()) {
      Say(absl::StrCat(flags.status().message(), "\nSee plimsoll ", argv[1], " --help"));
      return ExitCode::kBadInput;
    }
    // As CLI11 takes them: the last one first.
    line.app.parse(std::vector<std::string>(flags->rbegin(), flags->rend()));
    if (line.app.got_subcommand("serve")) server_options = line.server_flags->Read();
  } catch (const CLI::ParseError& error) {
    return Explain(line, error);
  }
  const std::string command = line.app.get_subcommands().front()->get_name();
  if (command == "estimate") return RunEstimate(line.estimate);
  if (command == "recommend") return RunRecommend(line.recommend);
  if (command == "diff") return RunDiff(line.diff);
  if (command == "admit") return RunAdmit(line.admit);
  if (command == "submit") return RunSubmit(line.submit);
  if (command == "report") return RunReport(line.report);
  if (command == "measure") return RunMeasure(line.measure);
  if (command == "models") return RunModels(line.models);
  if (command == "gpus") return RunGpus(line.gpus);
  if (command == "serve") return static_cast<ExitCode>(RunServer(server_options));
  return PrintCompletion(line);
}

}  // namespace plimsoll
