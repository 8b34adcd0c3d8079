-- What an operator may set, in /etc/plimsoll/slurm.lua: `return {program = ...}`.
local settings = {}

local FILE = "/etc/plimsoll/slurm.lua"

local DEFAULTS = {
  -- The program, the rules of admission, and where the service listens.
  program = "/usr/bin/plimsoll",
  policy = "/etc/plimsoll/policy.yaml",
  server = "unix:/run/plimsoll/plimsoll.sock",
  -- A submission waits for at most this long, seconds.
  budget_seconds = 0.1,
  -- After so many failures in a row Plimsoll is not asked for so many seconds.
  breaker_failures = 3,
  breaker_seconds = 60,
  -- Where node_exporter looks for the counts; "" for nowhere.
  textfile = "/var/lib/prometheus/node-exporter/plimsoll_admission.prom",
  -- Whether the prediction is written behind a job's comment, for the prolog.
  mark_comment = true,
  -- A user's own command waits for at most this long for its words to be read.
  resolve_seconds = 10,
}

local function check(given)
  if type(given) ~= "table" then
    return "must return a table"
  end
  for name, value in pairs(given) do
    local default = DEFAULTS[name]
    if default == nil then
      return ("%s: no such setting"):format(tostring(name))
    end
    if type(value) ~= type(default) then
      return ("%s: %s; must be a %s"):format(name, tostring(value), type(default))
    end
    if type(value) == "number" and not (value > 0 and value < math.huge) then
      return ("%s: %s; must be above 0"):format(name, value)
    end
  end
end

-- Returns the settings, and where a file is wrong, why: then all are the defaults.
-- No file: the defaults. PLIMSOLL_SLURM_SETTINGS names another file.
function settings.load()
  local path = os.getenv("PLIMSOLL_SLURM_SETTINGS") or FILE
  local wrong
  local result = setmetatable({}, { __index = DEFAULTS })
  local file = io.open(path)
  if not file then
    return result
  end
  file:close()
  local loaded, given = pcall(dofile, path)
  wrong = not loaded and given or check(given)
  if wrong then
    return result, ("%s: %s"):format(path, tostring(wrong))
  end
  for name, value in pairs(given) do
    result[name] = value
  end
  return result
end

-- Returns the text as one word of a shell's command.
function settings.quote(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

return settings
