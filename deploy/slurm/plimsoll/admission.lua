-- The gate: asks `plimsoll admit` about a submission, and obeys. It runs inside
-- slurmctld, under its locks: one process with a hard time limit, no second try, no
-- error ever, and while Plimsoll does not answer, no question either.
local apply = require("plimsoll.apply")
local breaker = require("plimsoll.breaker")
local counters = require("plimsoll.counters")
local request = require("plimsoll.request")
local settings = require("plimsoll.settings")
local words = require("plimsoll.words")

local json = require("cjson.safe").new()
local time = require("posix.time")

local gate = {}
gate.__index = gate

-- More than any decision has: what is printed beyond it is not read.
local MAX_ANSWER_BYTES = 1024 * 1024
local MAX_LOGGED_BYTES = 300
-- Of the budget, what the program has from its own start on.
local ANSWER_SHARE = 0.8

local DECISIONS = {
  DECISION_ADMIT = "admit", DECISION_WARN = "warn", DECISION_RESIZE = "resize",
  DECISION_REJECT = "reject",
}
local CAUSES = {
  CAUSE_NOT_ASKED = "not-asked", CAUSE_FITS = "fits", CAUSE_AT_RISK = "at-risk",
  CAUSE_DOES_NOT_FIT = "does-not-fit", CAUSE_BAD_WORDS = "bad-words",
  CAUSE_NOT_MODELLED = "not-modelled", CAUSE_UNREACHABLE = "unreachable",
}
local NOT_JUDGED = "Plimsoll: no answer in time: the job is queued unchecked"
local TELLING = { warn = true, enforce = true }
local MODES = { off = true, shadow = true, warn = true, enforce = true }

local UNREACHABLE = {
  decision = "admit", enforced = "admit", cause = "unreachable", mode = "unknown", message = "",
}
-- Decisions that the service had a part in.
local ANSWERED = { fits = true, ["at-risk"] = true, ["does-not-fit"] = true }
-- A job that no policy finds anything wrong with, and no service takes long for.
local PROBE = {
  scheduler = "slurm", command = "sbatch", tres_per_job = "gres:gpu:h100-80gb-sxm:1",
  environment_words = "model.transformer.hidden_size=64 model.transformer.layer_count=1"
    .. " model.transformer.head_count=1 model.transformer.vocab_size=64 sequence_length=1",
}
local NOT_ASKED = { decision = "admit", enforced = "admit", cause = "not-asked", mode = "unknown" }

-- A clock that nobody sets, seconds.
local function now()
  local clock = time.clock_gettime(time.CLOCK_MONOTONIC)
  return clock.tv_sec + clock.tv_nsec * 1e-9
end

local function text_of(value)
  return type(value) == "string" and value or ""
end

local function table_of(value)
  return type(value) == "table" and value or {}
end

-- Returns the decision in our own words, or nil for what is none.
local function read_decision(answer)
  local given = json.decode(answer)
  local decision = type(given) == "table" and DECISIONS[given.decision]
  local cause = decision and CAUSES[given.cause]
  if not cause then
    return nil
  end
  return {
    decision = decision,
    enforced = DECISIONS[given.enforced] or decision,
    cause = cause,
    mode = MODES[given.mode] and given.mode or "unknown",
    message = text_of(given.message),
    enforced_message = text_of(given.enforced_message or given.enforcedMessage),
    changes = table_of(given.scheduler_changes or given.schedulerChanges),
    environment = table_of(given.environment),
    prediction = text_of(given.prediction),
    truncated = given.truncated == true,
  }
end

-- Returns the gate of one Lua state of slurmctld.
function gate.new(slurm)
  local set, wrong = settings.load()
  if wrong then
    slurm.log_error("plimsoll: %s; the defaults hold", wrong)
  end
  local self = setmetatable({ slurm = slurm, settings = set }, gate)
  self.breaker = breaker.new(set.breaker_failures, set.breaker_seconds)
  self.counters = counters.new()
  self.unreachable = {} -- by partition: what the rules say where no answer comes
  self.modes = {} -- by partition: of its last decision
  self.written_at = -1
  pcall(self.write_counters, self)
  return self
end

-- One fixed command: nothing of it is a user's. It gives up by itself a little
-- before it is killed, so as to say what the rules say then.
function gate:command(request_file, error_file)
  local set, quote = self.settings, settings.quote
  return ("exec timeout -s KILL %g %s admit --scheduler-request %s --inline --policy %s --server %s"
          .. " --timeout %dms -o jsonl </dev/null 2>%s"):format(
    set.budget_seconds, quote(set.program), quote(request_file), quote(set.policy),
    quote(set.server), math.ceil(set.budget_seconds * ANSWER_SHARE * 1000), quote(error_file))
end

-- Returns what the program printed, and what it complained of.
function gate:run(text)
  local request_file, error_file = os.tmpname(), os.tmpname()
  local answer, complaint = "", ""
  local file = io.open(request_file, "w")
  if file and file:write(text) and file:close() then
    local program = io.popen(self:command(request_file, error_file), "r")
    answer = program and program:read(MAX_ANSWER_BYTES) or ""
    if program then
      program:close()
    end
    local errors = io.open(error_file)
    if errors then
      complaint = errors:read(MAX_LOGGED_BYTES) or ""
      errors:close()
    end
  end
  os.remove(request_file)
  os.remove(error_file)
  return answer, complaint
end

-- What the rules said last where no answer came, of partitions that exist: the strictest.
function gate:last_unreachable(partitions)
  local last
  for name in partitions:gmatch("[^,]+") do
    local decision = self.unreachable[name]
    if decision and (not last or decision.decision == "reject") then
      last = decision
    end
  end
  return last or UNREACHABLE
end

-- Whether there is an answer for a job that no user had a hand in, in the partition
-- whose jobs got none: its rules do ask.
function gate:probe(partition)
  local probe = { partition = partition }
  for name, value in pairs(PROBE) do
    probe[name] = value
  end
  local decision = read_decision((self:run(json.encode(probe))))
  return decision ~= nil and ANSWERED[decision.cause] ~= nil
end

-- A job may be slow by itself, or be made so: that alone keeps nobody else's from being
-- looked at.
function gate:failed(partition, complaint)
  if not self.breaker:failed() then
    return
  end
  if self:probe(partition) then
    self.breaker:succeeded()
    self.slurm.log_info("plimsoll: no answer for some jobs, but for others: still asked")
  elseif self.breaker:open(now()) then
    self.slurm.log_error("plimsoll: no answer, %d times in a row: not asked for %d s. %s",
                         self.breaker.limit, self.breaker.pause, words.clean(complaint))
  end
end

-- A submission that was not judged in time is counted; the first since others were is
-- said in the log.
function gate:missed(seconds, complaint)
  self.counters:miss()
  if not self.missing then
    self.slurm.log_error("plimsoll: not judged in its %g s (after %.3f s): counted in"
                         .. " plimsoll_admission_budget_missed_total from now on. %s",
                         self.settings.budget_seconds, seconds, words.clean(complaint))
  end
  self.missing = true
end

-- Asks, and returns a decision and the seconds that it took.
function gate:ask(asked, part_list)
  if not self.breaker:allows(now()) then
    return self:last_unreachable(asked.partition)
  end
  local begin = now()
  local answer, complaint = self:run(json.encode(asked))
  local seconds = now() - begin
  local decision = read_decision(answer)
  if decision and decision.cause ~= "unreachable" then
    if self.breaker:is_open() then
      self.slurm.log_info("plimsoll: answers again")
    end
    self.breaker:succeeded()
    self.missing = self.missing and decision.truncated
    if decision.truncated then
      self:missed(seconds, complaint)
    end
    self.modes[asked.partition] = part_list[asked.partition] and decision.mode
    return decision, seconds
  end
  if not decision then
    self.slurm.log_error("plimsoll: no decision after %.3f s. %s", seconds, words.clean(complaint))
  elseif part_list[asked.partition] then
    self.unreachable[asked.partition] = decision
  end
  self:missed(seconds, complaint)
  self:failed(asked.partition, complaint)
  return decision or self:last_unreachable(asked.partition), now() - begin
end

-- What the user is told of a decision; "" where nothing. A job that was queued without an
-- answer is told so where the mode tells: that of the partition's last decision, of a
-- program that said nothing.
function gate:message(decision, done, partition)
  if done ~= "admit" then
    return decision.message
  elseif decision.cause ~= "unreachable" then
    return ""
  end
  local mode = decision.mode ~= "unknown" and decision.mode or self.modes[partition]
  return TELLING[mode] and NOT_JUDGED or ""
end

-- Does what was decided. Returns the decision as it was obeyed.
function gate:obey(job_desc, batch, decision)
  if decision.decision == "reject" then
    return decision.decision
  end
  local changed = decision.decision ~= "resize" or apply.changes(job_desc, batch, decision.changes)
  if not changed then
    self.slurm.log_error("plimsoll: a resize that Slurm's request cannot say; admitted unchanged")
    return "admit"
  end
  apply.environment(batch, decision.environment or {})
  apply.prediction(job_desc, batch, decision.prediction or "")
  if self.settings.mark_comment then
    apply.mark(job_desc, decision.environment or {}, decision.prediction)
  end
  return decision.decision
end

function gate:write_counters()
  if self.settings.textfile == "" then
    return
  end
  local done, why = self.counters:write(self.settings.textfile, self.breaker:is_open())
  if not done and not self.complained then
    self.slurm.log_error("plimsoll: %s", why)
  end
  self.complained = not done
end

function gate:count(labels, seconds)
  self.counters:add(labels, seconds)
  -- A job without words costs nothing: it is written with the next that has some, or
  -- in the next second.
  if seconds or labels.cause ~= "not-asked" or os.time() ~= self.written_at then
    self.written_at = os.time()
    self:write_counters()
  end
end

function gate:try_submit(job_desc, part_list)
  apply.disarm(job_desc)
  local batch = request.batch_of(job_desc)
  local asked = request.of(job_desc, batch, part_list)
  if asked or apply.has_inherited(batch) then
    apply.forget(batch)
  end
  if not asked then
    self:count(NOT_ASKED)
    return self.slurm.SUCCESS
  end
  apply.consume_words(batch)
  local decision, seconds = self:ask(asked, part_list)
  local done = self:obey(job_desc, batch, decision)
  self:count({ mode = decision.mode, decision = done, enforced = decision.enforced,
               cause = decision.cause }, seconds)
  local message = self:message(decision, done, asked.partition)
  if message ~= "" then
    self.slurm.log_user("%s", message)
  end
  if decision.mode == "shadow" and (decision.enforced_message or "") ~= "" then
    self.slurm.log_info("plimsoll: in mode shadow, untold: %s",
                        (decision.enforced_message:gsub("\n", " | ")))
  end
  return done == "reject" and self.slurm.ESLURM_ACCOUNTING_POLICY or self.slurm.SUCCESS
end

-- Decides on a submission. Returns Slurm's code for it.
function gate:submit(job_desc, part_list)
  local done, result = pcall(self.try_submit, self, job_desc, part_list)
  if done then
    return result
  end
  self.slurm.log_error("plimsoll: admitted after an error: %s", tostring(result))
  pcall(self.count, self, UNREACHABLE)
  return self.slurm.SUCCESS
end

-- Lets every modification of a job through: its script is no longer here to be read,
-- and the job may run already.
function gate:modify(job_desc, job_rec)
  local done, why = pcall(apply.keep_mark, job_desc, job_rec)
  if not done then
    self.slurm.log_error("plimsoll: %s", tostring(why))
  end
  return self.slurm.SUCCESS
end

return gate
