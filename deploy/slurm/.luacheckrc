-- Slurm runs Lua 5.1, and gives its scripts one global table.
std = "lua51"
max_line_length = 100
read_globals = { "slurm" }
files["job_submit.lua"] = { globals = { "slurm_job_submit", "slurm_job_modify" } }
files["cli_filter.lua"] = {
  globals = { "slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit" },
}
