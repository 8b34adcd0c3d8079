-- sbatch, salloc and srun read, as their user, the job files that a submission names,
-- and pass what is in them on. All the work is done by plimsoll/resolve.lua; a site
-- with a cli_filter.lua of its own calls it from there. Nothing is refused here.
local found, resolve = pcall(require, "plimsoll.resolve")

function slurm_cli_setup_defaults(_, _)
  return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, _)
  if found then
    resolve.pre_submit(slurm, options)
  end
  return slurm.SUCCESS
end

function slurm_cli_post_submit(_, _, _)
  return slurm.SUCCESS
end

return slurm.SUCCESS
