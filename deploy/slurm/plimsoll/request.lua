-- What slurmctld knows of a submission, as `plimsoll admit` takes it: a
-- SchedulerRequest (proto/plimsoll/v1/admission.proto).
local words = require("plimsoll.words")

local request = {}

-- Slurm's fields and ours, with the smallest number that means "not given".
-- Source: Slurm 22.05, slurm/slurm.h.in (NO_VAL, NO_VAL16), job_desc_msg_t
local NO_VAL = 0xfffffffe
local NO_VAL16 = 0xfffe
request.NUMBERS = {
  { ours = "min_nodes", slurms = "min_nodes", unset = NO_VAL },
  { ours = "max_nodes", slurms = "max_nodes", unset = NO_VAL },
  { ours = "task_count", slurms = "num_tasks", unset = NO_VAL },
  { ours = "tasks_per_node", slurms = "ntasks_per_node", unset = NO_VAL16 },
  { ours = "tasks_per_gpu", slurms = "ntasks_per_tres", unset = NO_VAL16 }, -- --ntasks-per-gpu
  { ours = "sockets_per_node", slurms = "sockets_per_node", unset = NO_VAL16 },
}
request.TEXTS = { "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task" }

local MAX_TEXT_BYTES = 1024 -- Slurm's own limit of such a field

-- Each name once, so that no list is too long to be looked at whole.
local function each_once(partitions)
  local names, seen = {}, {}
  for name in partitions:gmatch("[^,]+") do
    if not seen[name] then
      seen[name] = true
      names[#names + 1] = name
    end
  end
  return table.concat(names, ",")
end

-- Returns the partitions that the job names, or else the default one; "" for neither.
function request.partition(job_desc, part_list)
  if job_desc.partition and job_desc.partition ~= "" then
    return each_once(job_desc.partition)
  end
  for name, partition in pairs(part_list) do
    if partition.flag_default == 1 then
      return name
    end
  end
  return ""
end

-- What a batch job brings: its script and its environment. Of salloc and srun the
-- controller gets neither. The script is copied out of Slurm at each look at it.
function request.batch_of(job_desc)
  local script = job_desc.script
  return script and { script = script, environment = job_desc.environment } or nil
end

-- Returns the request, or nil where the job says nothing to Plimsoll. `batch` is nil
-- for salloc and srun.
function request.of(job_desc, batch, part_list)
  local script, comment = "", ""
  -- All that the job says, with every file read; or else what it says itself.
  local environment = batch and batch.environment[words.RESOLVED] or ""
  if environment == "" then
    environment = batch and batch.environment[words.VARIABLE] or ""
    script = batch and words.of_script(batch.script) or ""
    comment = words.of_comment(job_desc.comment or "")
  end
  if environment == "" and script == "" and comment == "" then
    return nil
  end
  local result = {
    scheduler = "slurm",
    command = batch and "sbatch" or "salloc", -- or srun: they look alike from here
    partition = words.clean(words.cut(request.partition(job_desc, part_list), MAX_TEXT_BYTES)),
    script_words = words.clean(script),
    environment_words = words.clean(words.cut(environment, words.MAX_BYTES)),
    comment = words.clean(comment),
  }
  for _, name in ipairs(request.TEXTS) do
    result[name] = words.clean(words.cut(job_desc[name] or "", MAX_TEXT_BYTES))
  end
  for _, number in ipairs(request.NUMBERS) do
    local value = job_desc[number.slurms]
    if value and value < number.unset then
      result[number.ours] = ("%d"):format(value)
    end
  end
  return result
end

return request
