-- Slurm's controller asks Plimsoll before it queues a job. All the work is done by
-- plimsoll/admission.lua; a site with a job_submit.lua of its own calls it from there.
-- Whatever fails here, the job is queued as it is.
local found, admission = pcall(require, "plimsoll.admission")
local gate
if found then
  gate = admission.new(slurm)
else
  slurm.log_error("plimsoll: every job is admitted: %s", tostring(admission))
end

function slurm_job_submit(job_desc, part_list, _)
  return gate and gate:submit(job_desc, part_list) or slurm.SUCCESS
end

function slurm_job_modify(job_desc, job_rec, _, _)
  return gate and gate:modify(job_desc, job_rec) or slurm.SUCCESS
end

return slurm.SUCCESS
