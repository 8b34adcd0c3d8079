-- Counts decisions, and writes them for node_exporter's textfile collector. Each of
-- them begins at zero with slurmctld, as counters may.
local counters = {}
counters.__index = counters

local LABELS = { "scheduler", "mode", "decision", "enforced", "cause" }

-- What mode `enforce` does for each cause, as the policy's rules have it.
local ENFORCED = {
  { cause = "fits", decisions = { "admit" } },
  { cause = "at-risk", decisions = { "warn", "resize", "reject" } },
  { cause = "does-not-fit", decisions = { "warn", "resize", "reject" } },
  { cause = "bad-words", decisions = { "admit", "warn", "reject" } },
  { cause = "not-modelled", decisions = { "warn" } },
  { cause = "unreachable", decisions = { "admit", "warn", "reject" } },
  { cause = "not-asked", decisions = { "admit" } },
}
-- What each mode does of that. A resize that Slurm's request cannot say is admitted.
local DONE = {
  shadow = function() return { "admit" } end,
  warn = function(enforced) return { enforced == "admit" and "admit" or "warn" } end,
  enforce = function(enforced)
    return enforced == "resize" and { "resize", "admit" } or { enforced }
  end,
}
-- Where no rules are known, or none are asked.
local WITHOUT_RULES = {
  { mode = "off", decision = "admit", enforced = "admit", cause = "not-asked" },
  { mode = "unknown", decision = "admit", enforced = "admit", cause = "not-asked" },
  { mode = "unknown", decision = "admit", enforced = "admit", cause = "unreachable" },
}

local function series_of(labels)
  local pairs_of = {}
  for _, name in ipairs(LABELS) do
    local value = name == "scheduler" and "slurm" or labels[name]
    pairs_of[#pairs_of + 1] = ('%s="%s"'):format(name, value)
  end
  return table.concat(pairs_of, ",")
end

-- Every decision that there can be: what first appears with a count above zero is no
-- increase to Prometheus.
local function none_yet()
  local decisions = {}
  for _, labels in ipairs(WITHOUT_RULES) do
    decisions[series_of(labels)] = 0
  end
  for mode, done in pairs(DONE) do
    for _, row in ipairs(ENFORCED) do
      for _, enforced in ipairs(row.decisions) do
        for _, decision in ipairs(done(enforced)) do
          decisions[series_of({ mode = mode, decision = decision, enforced = enforced,
                                cause = row.cause })] = 0
        end
      end
    end
  end
  return decisions
end

function counters.new()
  local none = { decisions = none_yet(), seconds = 0, asked = 0, missed = 0, unwritten = false }
  return setmetatable(none, counters)
end

-- Counts one decision. `labels` has mode, decision, enforced and cause; `seconds`
-- is how long Plimsoll was waited for, nil where it was not asked.
function counters:add(labels, seconds)
  local series = series_of(labels)
  self.decisions[series] = (self.decisions[series] or 0) + 1
  if seconds then
    self.seconds = self.seconds + seconds
    self.asked = self.asked + 1
  end
  self.unwritten = true
end

-- Counts a submission that was not judged within the budget.
function counters:miss()
  self.missed = self.missed + 1
  self.unwritten = true
end

-- Returns the counts in Prometheus' text format.
function counters:text(breaker_open)
  local series = {}
  for name in pairs(self.decisions) do
    series[#series + 1] = name
  end
  table.sort(series)
  local lines = {
    "# HELP plimsoll_admission_decisions_total Decisions on submissions.",
    "# TYPE plimsoll_admission_decisions_total counter",
  }
  for _, name in ipairs(series) do
    lines[#lines + 1] =
      ("plimsoll_admission_decisions_total{%s} %d"):format(name, self.decisions[name])
  end
  lines[#lines + 1] = "# HELP plimsoll_admission_seconds Time that submissions waited for Plimsoll."
  lines[#lines + 1] = "# TYPE plimsoll_admission_seconds summary"
  lines[#lines + 1] = ("plimsoll_admission_seconds_sum %.6f"):format(self.seconds)
  lines[#lines + 1] = ("plimsoll_admission_seconds_count %d"):format(self.asked)
  lines[#lines + 1] = "# HELP plimsoll_admission_budget_missed_total "
    .. "Submissions not judged in time."
  lines[#lines + 1] = "# TYPE plimsoll_admission_budget_missed_total counter"
  lines[#lines + 1] = ("plimsoll_admission_budget_missed_total %d"):format(self.missed)
  lines[#lines + 1] =
    "# HELP plimsoll_admission_breaker_open 1 while Plimsoll is not asked, after failures in a row."
  lines[#lines + 1] = "# TYPE plimsoll_admission_breaker_open gauge"
  lines[#lines + 1] = ("plimsoll_admission_breaker_open %d"):format(breaker_open and 1 or 0)
  return table.concat(lines, "\n") .. "\n"
end

-- Writes them beside the file, then in its place. Returns nil and why where it can't.
function counters:write(path, breaker_open)
  local beside = path .. ".new"
  local file, why = io.open(beside, "w")
  if not file then
    return nil, why
  end
  local written, cause = file:write(self:text(breaker_open))
  local closed = file:close()
  if not (written and closed) then
    os.remove(beside)
    return nil, cause or "not written"
  end
  self.unwritten = false
  return os.rename(beside, path)
end

return counters
