-- Puts a decision into Slurm's description of a job: changed requests, variables of
-- its environment, and the prediction, in AdminComment and behind the comment.
local request = require("plimsoll.request")
local variables = require("plimsoll.variables")
local words = require("plimsoll.words")

local json = require("cjson.safe").new()

local apply = {}

local MARK_START = "[plimsoll expected="
local MARK = " " .. MARK_START .. "%s bound=%s usable=%s gpus=%s%s]"
local MAX_NAME_BYTES = 64 -- of a model's or GPU's name in the mark
local MARKED = {
  "PLIMSOLL_PREDICTED_BYTES", "PLIMSOLL_BOUND_BYTES", "PLIMSOLL_USABLE_BYTES",
  "PLIMSOLL_GPU_COUNT",
}

-- What sbatch wrote of its own options into the job's environment, and srun inside
-- the job reads: a changed request has to change it too.
-- Source: Slurm 22.05, sbatch(1), OUTPUT ENVIRONMENT VARIABLES
local OPTIONS = {
  tres_per_job = { "SLURM_GPUS" },
  tres_per_node = { "SLURM_GPUS_PER_NODE" },
  tres_per_socket = { "SLURM_GPUS_PER_SOCKET" },
  tres_per_task = { "SLURM_GPUS_PER_TASK" },
  min_nodes = { "SLURM_NNODES", "SLURM_JOB_NUM_NODES" },
  max_nodes = {},
  task_count = { "SLURM_NTASKS", "SLURM_NPROCS" },
  tasks_per_node = { "SLURM_NTASKS_PER_NODE" },
  tasks_per_gpu = { "SLURM_NTASKS_PER_GPU" },
}

local slurms_name = {}
for _, name in ipairs(request.TEXTS) do
  slurms_name[name] = { name = name, read = function(text) return text end }
end
for _, number in ipairs(request.NUMBERS) do
  slurms_name[number.ours] = {
    name = number.slurms,
    read = function(text)
      return text:find("^%d+$") and tonumber(text) < number.unset and tonumber(text) or nil
    end,
  }
end

-- What --gpus and the like say for `gres:gpu:h100:4`: `h100:4`.
local function as_option(tres)
  for item in tres:gmatch("[^,]+") do
    local gpus = item:match("^gres[:/]gpu[:/](.+)$") or item:match("^gpu[:/](.+)$")
    if gpus then
      return gpus
    end
  end
end

local function correct_environment(environment, field, value)
  local text = field:find("^tres_") and as_option(value) or value
  for _, name in ipairs(OPTIONS[field] or {}) do
    if text and environment[name] then
      environment[name] = text
    end
  end
end

-- Sets what a resize changes of the request (nothing, where the environment says it all):
-- all of it or none. Returns whether it did.
-- `batch` as request.batch_of has it.
function apply.changes(job_desc, batch, changes)
  local ready = {}
  for _, change in ipairs(changes) do
    local target = slurms_name[change.field]
    local value = target and type(change.value) == "string" and target.read(change.value)
    if not value then
      return false
    end
    ready[#ready + 1] = { target = target.name, value = value, change = change }
  end
  for _, one in ipairs(ready) do
    job_desc[one.target] = one.value
    if batch then
      correct_environment(batch.environment, one.change.field, one.change.value)
    end
  end
  return true
end

-- Sets the variables of a batch job; others have no environment here.
function apply.environment(batch, decided)
  if not batch then
    return
  end
  for name, value in pairs(decided) do
    if name:find("^PLIMSOLL_[A-Z0-9_]+$") and type(value) == "string" then
      batch.environment[name] = value
    end
  end
end

-- The prediction, for the job itself, and where the report at its end finds it. What
-- an administrator wrote there stays.
function apply.prediction(job_desc, batch, prediction)
  if prediction == "" then
    return
  end
  if batch then
    batch.environment.PLIMSOLL_PREDICTION = prediction
  end
  if (job_desc.admin_comment or "") == "" then
    job_desc.admin_comment = "plimsoll " .. prediction
  end
end

-- Whether the environment is that of a job with a decision. One look, for what is done
-- to jobs without words too.
function apply.has_inherited(batch)
  return batch ~= nil and (batch.environment.PLIMSOLL_PREDICTED_BYTES or "") ~= ""
end

-- Empties what was decided of another job, whose environment this one got.
function apply.forget(batch)
  for _, name in ipairs(batch and variables.NAMES or {}) do
    if (batch.environment[name] or "") ~= "" then
      batch.environment[name] = ""
    end
  end
end

-- Empties the variables that brought words: what the job itself submits is not
-- judged by them.
function apply.consume_words(batch)
  for _, name in ipairs({ words.RESOLVED, words.VARIABLE }) do
    if batch and batch.environment[name] then
      batch.environment[name] = ""
    end
  end
end

-- A comment without the meaning of what looks like our mark: nobody else writes it.
local function disarmed(comment)
  return (comment:gsub("%[plimsoll expected=", "(plimsoll expected="))
end

function apply.disarm(job_desc)
  local comment = job_desc.comment or ""
  if comment:find(MARK_START, 1, true) then
    job_desc.comment = disarmed(comment)
  end
end

-- Returns ` model=… gpu=…` of the job in a prediction, as a prolog may write them into
-- labels: a name is a user's text. Nothing of a name that is missing.
local function names_of(prediction)
  local given = json.decode(prediction)
  local job = type(given) == "table" and type(given.job) == "table" and given.job or {}
  local found = ""
  for _, path in ipairs({ { "model", "model", "name" }, { "gpu", "cluster", "gpu" } }) do
    local section = job[path[2]]
    local value = type(section) == "table" and section[path[3]]
    if type(value) == "string" and value ~= "" then
      local name = value:sub(1, MAX_NAME_BYTES):gsub("[^A-Za-z0-9._/-]", "_")
      found = ("%s %s=%s"):format(found, path[1], name)
    end
  end
  return found
end

-- Writes the figures of the prediction behind the comment, and what the job trains: all
-- that reaches a prolog. Where they do not fit, Plimsoll's own words make room; another
-- comment stays whole, and the names are left out.
function apply.mark(job_desc, decided, prediction)
  local figures = {}
  for at, name in ipairs(MARKED) do
    figures[at] = tostring(decided[name] or "")
    if not figures[at]:find("^%d+$") then
      return
    end
  end
  local comment = job_desc.comment or ""
  figures[#figures + 1] = names_of(prediction or "")
  local mark = MARK:format(unpack(figures))
  if #comment + #mark > words.MAX_COMMENT_BYTES then
    if words.of_comment(comment) ~= "" then
      comment = words.COMMENT_START
    else
      figures[#figures] = ""
      mark = MARK:format(unpack(figures))
    end
  end
  if #comment + #mark <= words.MAX_COMMENT_BYTES then
    job_desc.comment = comment == "" and mark:sub(2) or comment .. mark
  end
end

-- Keeps the mark of a job whose comment is changed, and lets nobody forge one.
function apply.keep_mark(job_desc, job_rec)
  if not job_desc.comment then
    return
  end
  local comment = disarmed(job_desc.comment)
  local start = (job_rec.comment or ""):find(MARK_START, 1, true)
  local mark = start and job_rec.comment:sub(start) or ""
  if mark ~= "" and #comment + 1 + #mark <= words.MAX_COMMENT_BYTES then
    comment = comment == "" and mark or comment .. " " .. mark
  end
  if comment ~= job_desc.comment then
    job_desc.comment = comment
  end
end

return apply
