-- Tests of what deploy/slurm's Lua does apart from Slurm: words, requests, changes, the
-- breaker, counts and settings. Slurm's own tables are plain ones here.
--   LUA_PATH="deploy/slurm/?.lua;;" lua5.1 plimsoll_test.lua
local apply = require("plimsoll.apply")
local breaker = require("plimsoll.breaker")
local counters = require("plimsoll.counters")
local request = require("plimsoll.request")
local settings = require("plimsoll.settings")
local words = require("plimsoll.words")

local tests, order = {}, {}

local function test(name, run)
  assert(not tests[name], name)
  tests[name] = run
  order[#order + 1] = name
end

local function expect(seen, wanted)
  if seen ~= wanted then
    error(("expected %q\n     saw %q"):format(tostring(wanted), tostring(seen)), 2)
  end
end

local function temporary(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

local FFFD = "\239\191\189"

test("a script's words are the directives before its first command", function()
  expect(words.of_script("#!/bin/sh\n#PLIMSOLL a=1\n#SBATCH -n 1\n\n  # note\n#PLIMSOLL b=2\n"
    .. "hostname\n#PLIMSOLL late=1\n"), "#PLIMSOLL a=1\n#PLIMSOLL b=2\n")
end)

test("a directive inside a line is none", function()
  expect(words.of_script("#!/bin/sh\n# say #PLIMSOLL a=1\n #PLIMSOLL b=2\n"), "")
end)

test("a script that begins with a command has no words", function()
  expect(words.of_script("hostname\n#PLIMSOLL a=1\n"), "")
end)

test("directives after the first command are noticed", function()
  expect(words.has_late("#!/bin/sh\n#PLIMSOLL a=1\nhostname\n#PLIMSOLL b=2\n"), true)
  expect(words.has_late("#!/bin/sh\n#PLIMSOLL a=1\nhostname\n"), false)
  expect(words.has_late("#!/bin/sh\n#PLIMSOLL a=1\n"), false)
  expect(words.has_late(""), false)
end)

test("a long script is looked at up to its first command", function()
  local rest = ("echo\n"):rep(1024 * 1024)
  expect(words.of_script("#!/bin/sh\n#PLIMSOLL a=1\n" .. rest), "#PLIMSOLL a=1\n")
  expect(words.of_script("#!/bin/sh\n" .. ("#\n"):rep(1024 * 1024)), "")
end)

test("a directive may be the last line, without a newline", function()
  expect(words.of_script("#!/bin/sh\n#PLIMSOLL a=1"), "#PLIMSOLL a=1\n")
end)

test("a script's words are cut one byte over the limit", function()
  local long = words.of_script("#!/bin/sh\n#PLIMSOLL " .. ("x"):rep(1024 * 1024) .. "\n")
  expect(#long:gsub("#PLIMSOLL", ""), words.MAX_BYTES + 1)
  local many = words.of_script("#!/bin/sh\n" .. ("#PLIMSOLL a=1\n"):rep(100000))
  expect(#many:gsub("#PLIMSOLL", ""), words.MAX_BYTES + 1)
end)

test("four megabytes of a hostile script take no time", function()
  for _, part in ipairs({ "\n", "#", "#\n", "\n\t ", "\n#PLIMSOL", " " }) do
    local script = "#!/bin/sh\n#PLIMSOLL a=1\n" .. part:rep(4 * 1024 * 1024 / #part)
    local begin = os.clock()
    expect(#words.of_script(script):gsub("#PLIMSOLL", ""), words.MAX_BYTES + 1)
    local seconds = os.clock() - begin
    assert(seconds < 0.1, ("%q took %.2f s"):format(part, seconds))
  end
end)

test("a comment has words where it begins with the mark", function()
  expect(words.of_comment("plimsoll:a=1"), "plimsoll:a=1")
  expect(words.of_comment("for plimsoll:a=1"), "")
  expect(words.of_comment("Plimsoll:a=1"), "")
  expect(#words.of_comment("plimsoll:" .. ("x"):rep(5000)), 9 + 1024 + 1)
end)

test("what is not UTF-8 is replaced, what is stays", function()
  local cases = {
    { "plain\n\ttext", "plain\n\ttext" },
    { "gr\195\188n \226\130\172 \240\159\154\162", "gr\195\188n \226\130\172 \240\159\154\162" },
    { "a\0b\27[31m\r\127", "a" .. FFFD .. "b" .. FFFD .. "[31m" .. FFFD:rep(2) },
    { "\195", FFFD }, { "\188", FFFD }, { "a\226\130b", "a" .. FFFD:rep(2) .. "b" },
    { "\192\175", FFFD:rep(2) }, -- an overlong slash
    { "\237\160\128", FFFD:rep(3) }, -- a surrogate
    { "\244\144\128\128", FFFD:rep(4) }, -- above U+10FFFF
    { "\226\195\188", FFFD:rep(3) }, { "\195\188\188", FFFD:rep(3) },
    { "\195\188 \255", FFFD:rep(2) .. " " .. FFFD },
  }
  for _, case in ipairs(cases) do
    expect(words.clean(case[1]), case[2])
  end
end)

test("cleaning takes no time", function()
  for _, part in ipairs({ "\255", "\195\188", "\244\144", "a\255", "\1", "a\1", "\195\188\1" }) do
    local text = part:rep(words.MAX_BYTES / #part)
    local begin = os.clock()
    words.clean(text)
    local seconds = os.clock() - begin
    assert(seconds < 0.1, ("%q took %.3f s"):format(part, seconds))
  end
end)

local NO_VAL, NO_VAL16 = 0xfffffffe, 0xfffe
local PARTITIONS = { gpu = { flag_default = 1 }, cpu = { flag_default = 0 } }

local function batch_job(fields)
  local job = { script = "#!/bin/sh\n", environment = {}, min_nodes = NO_VAL, max_nodes = NO_VAL,
                num_tasks = NO_VAL, ntasks_per_node = NO_VAL16, ntasks_per_tres = NO_VAL16,
                sockets_per_node = NO_VAL16 }
  for name, value in pairs(fields or {}) do
    job[name] = value
  end
  return job
end

local function request_of(job)
  return request.of(job, request.batch_of(job), PARTITIONS)
end

test("a job without words asks nothing", function()
  expect(request_of(batch_job()), nil)
  expect(request_of(batch_job({ comment = "for the paper", tres_per_node = "gres:gpu:8" })), nil)
  expect(request_of({ comment = "" }), nil)
end)

test("a request has what Slurm knows, and leaves out what is not given", function()
  local asked = request_of(batch_job({
    script = "#!/bin/sh\n#PLIMSOLL a=1\n", environment = { PLIMSOLL_JOB = "b=2" },
    comment = "plimsoll:c=3", tres_per_node = "gres:gpu:h100:8", min_nodes = 2, num_tasks = 16,
    ntasks_per_node = 8, ntasks_per_tres = 2 }))
  expect(asked.script_words, "#PLIMSOLL a=1\n")
  expect(asked.environment_words, "b=2")
  expect(asked.comment, "plimsoll:c=3")
  expect(asked.scheduler, "slurm")
  expect(asked.command, "sbatch")
  expect(asked.partition, "gpu")
  expect(asked.tres_per_node, "gres:gpu:h100:8")
  expect(asked.tres_per_job, "")
  expect(asked.min_nodes, "2")
  expect(asked.max_nodes, nil)
  expect(asked.task_count, "16")
  expect(asked.tasks_per_node, "8")
  expect(asked.tasks_per_gpu, "2")
  expect(asked.sockets_per_node, nil)
end)

test("words with every file read are all the words", function()
  local asked = request_of(batch_job({
    script = "#!/bin/sh\n#PLIMSOLL job.yaml\n", comment = "plimsoll:c=3",
    environment = { PLIMSOLL_JOB = "b=2", SLURM_PLIMSOLL_JOB = "resize=allowed {}" } }))
  expect(asked.environment_words, "resize=allowed {}")
  expect(asked.script_words, "")
  expect(asked.comment, "")
end)

test("salloc and srun bring a comment alone", function()
  local asked = request_of({ comment = "plimsoll:c=3", partition = "cpu,gpu" })
  expect(asked.comment, "plimsoll:c=3")
  expect(asked.command, "salloc")
  expect(asked.partition, "cpu,gpu")
end)

test("a partition is named once, however often the job does", function()
  local asked = request_of({ comment = "plimsoll:c=3", partition = ("cpu,"):rep(999) .. "gpu,cpu" })
  expect(asked.partition, "cpu,gpu")
end)

local function resized(job, changes)
  return apply.changes(job, request.batch_of(job), changes)
end

test("a resize changes the request, and what sbatch said of it", function()
  local job = batch_job({ tres_per_node = "gres:gpu:h100:8", num_tasks = 8, environment = {
    SLURM_GPUS_PER_NODE = "h100:8", SLURM_NTASKS = "8", SLURM_NPROCS = "8" } })
  expect(resized(job, { { field = "tres_per_node", value = "gres:gpu:h100:4" },
                        { field = "task_count", value = "4" } }), true)
  expect(job.tres_per_node, "gres:gpu:h100:4")
  expect(job.num_tasks, 4)
  expect(job.environment.SLURM_GPUS_PER_NODE, "h100:4")
  expect(job.environment.SLURM_NTASKS, "4")
  expect(job.environment.SLURM_NPROCS, "4")
  expect(job.environment.SLURM_GPUS, nil)
end)

test("the newer form of a request is understood as an option too", function()
  local job = batch_job({ environment = { SLURM_GPUS = "8" } })
  expect(resized(job, { { field = "tres_per_job", value = "gres/gpu:4" } }), true)
  expect(job.environment.SLURM_GPUS, "4")
end)

test("a resize is whole or nothing", function()
  for _, wrong in ipairs({ { field = "priority", value = "1" }, { value = "1" },
                           { field = "min_nodes", value = "-1" },
                           { field = "min_nodes", value = "1e3" },
                           { field = "tres_per_node", value = 4 },
                           { field = "tasks_per_node", value = "65534" } }) do
    local job = batch_job({ tres_per_job = "gres:gpu:8" })
    expect(resized(job, { { field = "tres_per_job", value = "gres:gpu:4" }, wrong }), false)
    expect(job.tres_per_job, "gres:gpu:8")
  end
  expect(resized(batch_job(), {}), true)
end)

test("only variables of Plimsoll's own get into a job", function()
  local job = batch_job()
  apply.environment(request.batch_of(job), { PLIMSOLL_ZERO_STAGE = "3", LD_PRELOAD = "x.so",
                                             ["PLIMSOLL_A=b"] = "c", PLIMSOLL_N = 1 })
  expect(job.environment.PLIMSOLL_ZERO_STAGE, "3")
  expect(job.environment.LD_PRELOAD, nil)
  expect(job.environment["PLIMSOLL_A=b"], nil)
  expect(job.environment.PLIMSOLL_N, nil)
end)

test("words are for one submission", function()
  local job = batch_job({ environment = { PLIMSOLL_JOB = "a=1", SLURM_PLIMSOLL_JOB = "{}" } })
  apply.consume_words(request.batch_of(job))
  expect(job.environment.PLIMSOLL_JOB, "")
  expect(job.environment.SLURM_PLIMSOLL_JOB, "")
  job = batch_job()
  apply.consume_words(request.batch_of(job))
  expect(next(job.environment), nil)
  apply.consume_words(nil)
end)

test("what was decided of another job is emptied where it is, and nothing else", function()
  local job = batch_job({ environment = {
    PLIMSOLL_ZERO_STAGE = "3", PLIMSOLL_PREDICTION = "{}", PLIMSOLL_LOSS_IMPLEMENTATION = "chunked",
    PLIMSOLL_SERVER = "unix:/s", PLIMSOLL_POLICY = "p", PLIMSOLL_JOB = "a=1", HOME = "/h" } })
  apply.forget(request.batch_of(job))
  local left = { PLIMSOLL_ZERO_STAGE = "", PLIMSOLL_PREDICTION = "",
                 PLIMSOLL_LOSS_IMPLEMENTATION = "", PLIMSOLL_SERVER = "unix:/s",
                 PLIMSOLL_POLICY = "p", PLIMSOLL_JOB = "a=1", HOME = "/h" }
  for name, value in pairs(job.environment) do
    expect(value, left[name])
    left[name] = nil
  end
  expect(next(left), nil)
  apply.forget(nil)
end)

test("a job inside another has what was decided of that", function()
  expect(apply.has_inherited(nil), false)
  expect(apply.has_inherited(batch_job()), false)
  expect(apply.has_inherited(batch_job({ environment = { PLIMSOLL_PREDICTED_BYTES = "" } })), false)
  expect(apply.has_inherited(batch_job({ environment = { PLIMSOLL_PREDICTED_BYTES = "1" } })), true)
end)

test("an administrator's comment stays", function()
  local function predicted(job, prediction)
    apply.prediction(job, request.batch_of(job), prediction)
    return job.admin_comment, job.environment and job.environment.PLIMSOLL_PREDICTION
  end
  local function expect_both(admin_comment, variable, seen, seen_variable)
    expect(seen, admin_comment)
    expect(seen_variable, variable)
  end
  expect_both("keep", "{}", predicted(batch_job({ admin_comment = "keep" }), "{}"))
  expect_both("plimsoll {}", "{}", predicted(batch_job(), "{}"))
  expect_both("plimsoll {}", nil, predicted({ comment = "a salloc's" }, "{}"))
  expect_both(nil, nil, predicted(batch_job(), ""))
end)

local FIGURES = { PLIMSOLL_PREDICTED_BYTES = "1", PLIMSOLL_BOUND_BYTES = "2",
                  PLIMSOLL_USABLE_BYTES = "3", PLIMSOLL_GPU_COUNT = "4" }
local MARK = "[plimsoll expected=1 bound=2 usable=3 gpus=4]"

local function marked(comment, figures, prediction)
  local job = batch_job({ comment = comment })
  apply.mark(job, figures or FIGURES, prediction)
  return job.comment
end

test("the mark is put behind a comment that has room", function()
  expect(marked(nil), MARK)
  expect(marked("paper"), "paper " .. MARK)
  expect(marked(("x"):rep(1024 - #MARK - 1)), ("x"):rep(1024 - #MARK - 1) .. " " .. MARK)
  expect(marked(("x"):rep(1024 - #MARK)), ("x"):rep(1024 - #MARK))
  expect(marked("plimsoll:" .. ("x"):rep(1000)), "plimsoll: " .. MARK)
  expect(marked("paper", { PLIMSOLL_PREDICTED_BYTES = "1" }), "paper")
  expect(marked("paper", { PLIMSOLL_PREDICTED_BYTES = "1", PLIMSOLL_BOUND_BYTES = "2",
                           PLIMSOLL_USABLE_BYTES = "3]", PLIMSOLL_GPU_COUNT = "4" }), "paper")
end)

test("the mark names the model and the GPU, where there is room", function()
  local function named(model, gpu, comment)
    local job = '{"job": {"model": {"name": %s}, "cluster": {"gpu": %s}}}'
    return marked(comment, FIGURES, job:format(model, gpu))
  end
  local figures = MARK:sub(1, -2)
  local full = figures .. " model=meta-llama/Llama-3.1-8B gpu=h100-80gb-sxm]"
  local name, gpu = '"meta-llama/Llama-3.1-8B"', '"h100-80gb-sxm"'
  expect(named(name, gpu), full)
  expect(named(name, '""'), figures .. " model=meta-llama/Llama-3.1-8B]")
  expect(named("7", gpu), figures .. " gpu=h100-80gb-sxm]")
  expect(named('"a b] gpus=9\\"\195\188"', '""'), figures .. " model=a_b__gpus_9___]")
  expect(#named('"' .. ("x"):rep(500) .. '"', '""'), #MARK + #" model=" + 64)
  expect(named(name, gpu, ("x"):rep(1024 - #full)), ("x"):rep(1024 - #full) .. " " .. MARK)
  expect(named(name, gpu, "plimsoll:" .. ("x"):rep(1000)), "plimsoll: " .. full)
  for _, prediction in ipairs({ "{", "[]", '{"job": 7}', '{"job": {"model": "x"}}', "" }) do
    expect(marked("paper", FIGURES, prediction), "paper " .. MARK)
  end
end)

test("nobody forges a mark, and a changed comment keeps it", function()
  local forged = batch_job({ comment = "a " .. MARK })
  apply.disarm(forged)
  expect(forged.comment, "a (plimsoll expected=1 bound=2 usable=3 gpus=4]")
  local function kept(comment, before)
    local job = { comment = comment }
    apply.keep_mark(job, { comment = before })
    return job.comment
  end
  expect(kept("new", "old " .. MARK), "new " .. MARK)
  expect(kept("", "old " .. MARK), MARK)
  expect(kept("new", "old"), "new")
  expect(kept("new", nil), "new")
  expect(kept(nil, "old " .. MARK), nil)
  expect(kept(MARK:gsub("1", "9"), "old " .. MARK),
         "(plimsoll expected=9 bound=2 usable=3 gpus=4] " .. MARK)
end)

test("a breaker should open after failures in a row, and tries once after the pause", function()
  local one = breaker.new(3, 60)
  expect(one:failed(), false)
  expect(one:failed(), false)
  one:succeeded()
  expect(one:failed(), false)
  expect(one:failed(), false)
  expect(one:failed(), true)
  expect(one:is_open(), false)
  expect(one:allows(4), true)
  expect(one:open(4), true)
  expect(one:is_open(), true)
  expect(one:allows(63.9), false)
  expect(one:allows(64), true)
  expect(one:failed(), true)
  expect(one:open(64), false)
  expect(one:allows(65), false)
  expect(one:allows(124), true)
  one:succeeded()
  expect(one:is_open(), false)
  expect(one:failed(), false)
  expect(one:allows(125), true)
end)

-- The decisions of a text in Prometheus' format whose count is above zero, and all.
local function decisions_of(text)
  local counted, all = {}, {}
  for series, count in text:gmatch("plimsoll_admission_decisions_total(%b{}) (%d+)\n") do
    all[#all + 1] = series
    if count ~= "0" then
      counted[#counted + 1] = series .. " " .. count
    end
  end
  return counted, all
end

test("every decision that there can be is written from the start, at zero", function()
  local counted, all = decisions_of(counters.new():text(false))
  expect(#counted, 0)
  expect(#all, 3 + 3 * 15 + 2) -- without rules; by three modes; resizes that can't be said
  local text = table.concat(all, "\n")
  for name, values in pairs({
    mode = "off shadow warn enforce unknown",
    decision = "admit warn resize reject",
    enforced = "admit warn resize reject",
    cause = "not-asked fits at-risk does-not-fit bad-words not-modelled unreachable",
  }) do
    for value in values:gmatch("%S+") do
      local label = ('%s="%s"'):format(name, value)
      assert(text:find(label, 1, true), label .. " is not there")
    end
  end
  for _, never in ipairs({ 'mode="shadow",decision="reject"', 'mode="warn",decision="resize"',
                           'mode="off",decision="warn"', 'enforced="reject",cause="fits"' }) do
    assert(not text:find(never, 1, true), never)
  end
end)

test("counts are written whole, in the form that node_exporter reads", function()
  local counts = counters.new()
  local fits = { mode = "warn", decision = "admit", enforced = "admit", cause = "fits" }
  counts:add(fits, 0.25)
  counts:add(fits, 0.5)
  counts:add({ mode = "unknown", decision = "admit", enforced = "admit", cause = "unreachable" })
  counts:miss()
  local path = os.tmpname()
  assert(counts:write(path, true))
  local file = assert(io.open(path))
  local written = file:read("*a")
  local name = "plimsoll_admission_decisions_total"
  local head = [[
# HELP plimsoll_admission_decisions_total Decisions on submissions.
# TYPE plimsoll_admission_decisions_total counter
]]
  expect(written:sub(1, #head), head)
  expect(table.concat(decisions_of(written), "\n"), [[
{scheduler="slurm",mode="unknown",decision="admit",enforced="admit",cause="unreachable"} 1
{scheduler="slurm",mode="warn",decision="admit",enforced="admit",cause="fits"} 2]])
  local rest = written:sub(#head + 1):gsub(name .. "%b{} %d+\n", "")
  expect(rest, [[
# HELP plimsoll_admission_seconds Time that submissions waited for Plimsoll.
# TYPE plimsoll_admission_seconds summary
plimsoll_admission_seconds_sum 0.750000
plimsoll_admission_seconds_count 2
# HELP plimsoll_admission_budget_missed_total Submissions not judged in time.
# TYPE plimsoll_admission_budget_missed_total counter
plimsoll_admission_budget_missed_total 1
# HELP plimsoll_admission_breaker_open 1 while Plimsoll is not asked, after failures in a row.
# TYPE plimsoll_admission_breaker_open gauge
plimsoll_admission_breaker_open 1
]])
  file:close()
  expect(io.open(path .. ".new"), nil)
  os.remove(path)
  local done, why = counts:write("/nonexistent/plimsoll.prom", false)
  expect(done, nil)
  expect(why, "/nonexistent/plimsoll.prom.new: No such file or directory")
end)

-- A gate whose program answers what a test says; what it logs and tells is kept.
local function gate_that(answers)
  local logged, told = {}, {}
  local slurm = {
    SUCCESS = 0, ESLURM_ACCOUNTING_POLICY = 1,
    log_error = function(...) logged[#logged + 1] = string.format(...) end,
    log_info = function(...) logged[#logged + 1] = string.format(...) end,
    log_user = function(...) told[#told + 1] = string.format(...) end,
  }
  local gate = require("plimsoll.admission").new(slurm)
  gate.settings = setmetatable({ textfile = "" }, { __index = gate.settings })
  local at = 0
  gate.run = function()
    at = at + 1
    return answers[at] or "", answers[at] and "" or "killed"
  end
  local function submit()
    return gate:submit(batch_job({ script = "#!/bin/sh\n#PLIMSOLL a=1\n", partition = "gpu" }),
                       PARTITIONS)
  end
  return submit, logged, told, gate
end

local function decision_in(mode, more)
  return ('{"decision": "DECISION_ADMIT", "enforced": "DECISION_REJECT", "mode": "%s",'
          .. ' "cause": "CAUSE_DOES_NOT_FIT"%s}'):format(mode, more or "")
end

test("a missed budget is counted each time, told to its user, and logged the first time",
     function()
  local warned = decision_in("warn")
  local submit, logged, told, gate = gate_that({ warned, nil, nil, warned })
  gate.breaker.limit = 10
  submit()
  expect(#told, 0)
  for misses = 1, 2 do
    expect(submit(), 0)
    expect(told[misses], "Plimsoll: no answer in time: the job is queued unchecked")
    expect(gate.counters.missed, misses)
  end
  local text = table.concat(logged, "\n")
  local _, first = text:gsub("plimsoll: not judged in its 0.1 s", "")
  expect(first, 1)
  submit() -- in time again
  submit()
  _, first = table.concat(logged, "\n"):gsub("plimsoll: not judged in its 0.1 s", "")
  expect(first, 2)
end)

test("a search that was cut short missed its budget too", function()
  local submit, logged, _, gate = gate_that({ decision_in("enforce", ', "truncated": true') })
  submit()
  expect(gate.counters.missed, 1)
  assert(logged[1]:find("not judged in its", 1, true), logged[1])
end)

test("in mode shadow nobody is told, and the log keeps what would have been said", function()
  local submit, logged, told = gate_that({
    decision_in("shadow", ', "enforced_message": "Plimsoll: needs more\\nPlimsoll: a fix"'), nil })
  submit()
  expect(logged[1], "plimsoll: in mode shadow, untold: Plimsoll: needs more | Plimsoll: a fix")
  submit()
  expect(#told, 0)
end)

test("settings are checked, and the defaults hold where they are wrong", function()
  local real = os.getenv
  local function load(text)
    local path = temporary(text)
    os.getenv = function() return path end -- luacheck: ignore 122
    local result, wrong = settings.load()
    os.getenv = real -- luacheck: ignore 122
    os.remove(path)
    return result, wrong and wrong:gsub("^[^:]*: ", "")
  end
  local set, wrong = load("return {budget_seconds = 0.2}")
  expect(set.budget_seconds, 0.2)
  expect(set.breaker_seconds, 60)
  expect(wrong, nil)
  local cases = {
    { "return {budget = 0.2}", "budget: no such setting" },
    { "return {budget_seconds = '0.2'}", "budget_seconds: 0.2; must be a number" },
    { "return {budget_seconds = 0}", "budget_seconds: 0; must be above 0" },
    { "return 1", "must return a table" },
  }
  for _, case in ipairs(cases) do
    set, wrong = load(case[1])
    expect(set.budget_seconds, 0.1)
    expect(wrong, case[2])
  end
  set, wrong = load("return {")
  expect(set.budget_seconds, 0.1)
  assert(wrong:find("unexpected symbol"), wrong)
end)

test("a word of a shell's command stays one word", function()
  for _, text in ipairs({ "plain", "a b", "it's", "$(id)", "`id`", "a\nb", "\\", "" }) do
    local program = io.popen("printf %s " .. settings.quote(text))
    expect(program:read("*a"), text)
    program:close()
  end
end)

local failed = 0
for _, name in ipairs(order) do
  local done, why = pcall(tests[name])
  if not done then
    failed = failed + 1
    print(("FAILED %s\n  %s"):format(name, why))
  end
end
print(("%d of %d passed"):format(#order - failed, #order))
os.exit(failed == 0 and #order > 0 and 0 or 1)
