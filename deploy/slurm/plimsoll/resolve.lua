-- Reads, as the user, the job files that a submission names, and passes what is in
-- them on in words: the controller opens no file of a user. It refuses nothing: what
-- is wrong is passed on too, and told and judged there, once.
local settings = require("plimsoll.settings")
local variables = require("plimsoll.variables")
local words = require("plimsoll.words")

local json = require("cjson.safe").new()

local resolve = {}

-- Slurm's own limit of a batch script.
local MAX_SCRIPT_BYTES = 4 * 1024 * 1024
local COMMANDS = { sbatch = true, salloc = true, srun = true }

local function read(path, limit)
  local file = io.open(path, "r")
  local text = file and file:read(limit)
  if file then
    file:close()
  end
  return text or ""
end

local function is_submission(options)
  local kind = options["type"]
  return COMMANDS[kind] and not (kind == "srun" and os.getenv("SLURM_JOB_ID"))
end

-- The batch script; "" where there is none, or where it can't be read twice.
local function script_of(options)
  local path = options["type"] == "sbatch" and not options["wrap"] and options.argv[1]
  local found, status = pcall(require, "posix.sys.stat")
  local what = path and found and status.stat(path)
  return what and status.S_ISREG(what.st_mode) ~= 0 and read(path, MAX_SCRIPT_BYTES) or ""
end

-- Returns what the submission says, as `plimsoll admit` takes it; nil where nothing.
local function request_of(options, script_text)
  local script = words.of_script(script_text)
  local environment = os.getenv(words.VARIABLE) or ""
  local comment = words.of_comment(options["comment"] or "")
  if script == "" and environment == "" and comment == "" then
    return nil
  end
  return {
    scheduler = "slurm",
    command = options["type"],
    script_words = words.clean(script),
    environment_words = words.clean(words.cut(environment, words.MAX_BYTES)),
    comment = words.clean(comment),
  }
end

-- Returns the words in one line with every file read; or nil, words that say what is
-- wrong, and the same for people.
local function print_words(set, request)
  local request_file, error_file = os.tmpname(), os.tmpname()
  local line, complaint
  local unread = ""
  local file = io.open(request_file, "w")
  if file and file:write(json.encode(request)) and file:close() then
    local program = io.popen(
      ("timeout -s KILL %s %s admit --scheduler-request %s --print-words </dev/null 2>%s; echo $?")
        :format(set.resolve_seconds, settings.quote(set.program), settings.quote(request_file),
                settings.quote(error_file)))
    local answer = program:read("*a")
    line = answer:match("^([^\n]*)\n0\n$")
    unread = answer:match("^(unread=.*)\n2\n$") or ""
    program:close()
    complaint = read(error_file, words.MAX_BYTES)
  end
  os.remove(request_file)
  os.remove(error_file)
  return line, unread, complaint or ""
end

-- Says what does not fit in where words travel: the controller judges what is left.
local function say_too_large(slurm, bytes, limit, advice)
  slurm.log_error("plimsoll: the job and the files that it names are %d bytes of words, and %d can"
                  .. " travel: %s", bytes, limit, advice)
end

-- sbatch: in its environment, which it is about to read. Returns whether it went.
local function into_environment(options, line)
  local found, stdlib = pcall(require, "posix.stdlib")
  return found and options["type"] == "sbatch" and not options["export-file"]
    and stdlib.setenv(words.RESOLVED, line) == 0
end

-- Else in the comment, unless it is the user's for something else. Returns whether it
-- went.
local function into_comment(slurm, options, line)
  local comment = words.COMMENT_START .. line
  local present = options["comment"] or ""
  if present ~= "" and words.of_comment(present) == "" then
    slurm.log_error("plimsoll: --comment is taken by a comment; %s can bring words there alone",
                    options["type"])
  elseif #comment > words.MAX_COMMENT_BYTES then
    say_too_large(slurm, #comment, words.MAX_COMMENT_BYTES, "use sbatch, which takes more")
  else
    options["comment"] = comment
    return true
  end
  return false
end

-- Passes on what is wrong: who decides tells it, where the mode has anybody told. Where
-- the words as they are say as much, `unread` is empty; where it can't travel, what is
-- wrong is told here.
local function pass_on(slurm, options, unread, complaint)
  if unread == "" or into_environment(options, unread)
    or into_comment(slurm, options, unread:match("^[^\n]*")) then
    return
  end
  for wrong in complaint:gmatch("[^\n]+") do
    slurm.log_error("plimsoll: %s", wrong)
  end
end

-- Takes variables out of this command's environment, where they are.
local function forget(names)
  local found, stdlib = pcall(require, "posix.stdlib")
  for _, name in ipairs(found and names or {}) do
    if os.getenv(name) then
      stdlib.setenv(name, nil)
    end
  end
end

local function try(slurm, options)
  if not is_submission(options) then
    return
  end
  forget({ words.RESOLVED }) -- of another submission
  local script = script_of(options)
  if words.has_late(script) then
    slurm.log_error("plimsoll: #PLIMSOLL lines after the script's first command are not read")
  end
  local request = request_of(options, script)
  if not request then
    return
  end
  local line, unread, complaint = print_words(settings.load(), request)
  if not line then
    pass_on(slurm, options, unread, complaint)
    return
  end
  if options["type"] == "sbatch" and #line > words.MAX_BYTES then
    say_too_large(slurm, #line, words.MAX_BYTES, "name the model, or leave out what is not needed")
    line = words.cut(line, words.MAX_BYTES)
  end
  if line ~= "" and not into_environment(options, line) then
    into_comment(slurm, options, line)
  end
end

-- A job of salloc or srun has this command's environment: what it submits itself is not
-- judged by these words, and what was decided of a job around it is not its own.
local function leave_nothing(_, options)
  if is_submission(options) and options["type"] ~= "sbatch" then
    forget({ words.VARIABLE })
    forget(variables.NAMES)
  end
end

-- What a cli_filter.lua calls before a submission. Never an error.
function resolve.pre_submit(slurm, options)
  for _, step in ipairs({ try, leave_nothing }) do
    local done, why = pcall(step, slurm, options)
    if not done then
      slurm.log_error("plimsoll: %s", tostring(why))
    end
  end
end

return resolve
