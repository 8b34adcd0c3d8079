-- What a submission says to Plimsoll, found in what Slurm knows of it. Pure text:
-- nothing here opens a file or runs a program.
local words = {}

-- The most bytes of a script's words, and of PLIMSOLL_JOB, that `plimsoll admit` takes.
words.MAX_BYTES = 64 * 1024
-- Slurm's own limit of --comment.
words.MAX_COMMENT_BYTES = 1024
-- What begins a comment that is meant for Plimsoll.
words.COMMENT_START = "plimsoll:"
-- The variable that a user sets.
words.VARIABLE = "PLIMSOLL_JOB"
-- The variable that brings words with every file read. Slurm passes variables of
-- this prefix on whatever --export says.
words.RESOLVED = "SLURM_PLIMSOLL_JOB"

local DIRECTIVE = "#PLIMSOLL"
-- More than words fill, with as much again that is none. slurmctld waits for the look.
local MAX_HEADER_BYTES = 4 * words.MAX_BYTES
local REPLACEMENT = "\239\191\189" -- U+FFFD in UTF-8

-- Well-formed sequences of UTF-8 beyond ASCII. Source: RFC 3629, section 4.
local SEQUENCES = {
  "[\194-\223][\128-\191]",
  "\224[\160-\191][\128-\191]",
  "[\225-\236\238\239][\128-\191][\128-\191]",
  "\237[\128-\159][\128-\191]",
  "\240[\144-\191][\128-\191][\128-\191]",
  "[\241-\243][\128-\191][\128-\191][\128-\191]",
  "\244[\128-\143][\128-\191][\128-\191]",
}

-- By a few passes over the whole text: its user may wish them slow.
local function is_utf8(text)
  for _, sequence in ipairs(SEQUENCES) do
    text = text:gsub(sequence, " ")
  end
  return not text:find("[\128-\255]")
end

-- Returns the text as JSON can carry it, no shorter. Control characters other than
-- newline and tab become U+FFFD; and where anything in the text is not UTF-8, so does
-- every byte beyond ASCII.
function words.clean(text)
  if text:find("[\128-\255]") and not is_utf8(text) then
    text = text:gsub("[\128-\255]", REPLACEMENT)
  end
  return (text:gsub("[%z\1-\8\11-\31\127]", REPLACEMENT))
end

-- Returns the text cut to one byte over the limit, so that it is refused for its
-- length by whoever knows the rule.
function words.cut(text, limit)
  return #text > limit and text:sub(1, limit + 1) or text
end

-- Where the lines before the first command end, as Slurm reads #SBATCH; and whether
-- there is no command in all that is looked at.
local function header_end(script)
  local head = script:sub(1, MAX_HEADER_BYTES)
  if head:find("^[ \t\r\v\f]*[^#%s]") then
    return 0
  end
  local command = head:find("\n[ \t\r\v\f]*[^#%s]")
  return command or #head, not command and #script > #head
end

-- Returns the lines of a batch script's header that begin with `#PLIMSOLL`, each
-- with its newline; "" where there are none. The limit is of what follows that word;
-- a header without end is over it.
function words.of_script(script)
  local stop_at, endless = header_end(script)
  local text = "\n" .. script:sub(1, stop_at)
  local lines, bytes, at = {}, 0, 1
  while bytes <= words.MAX_BYTES do
    local start = text:find("\n" .. DIRECTIVE, at, true)
    if not start then
      break
    end
    local stop = text:find("\n", start + 1, true) or #text + 1
    lines[#lines + 1] = text:sub(start + 1, stop - 1) .. "\n"
    bytes = bytes + #lines[#lines] - #DIRECTIVE
    at = stop
  end
  if endless and #lines > 0 and bytes <= words.MAX_BYTES then
    lines[#lines + 1] = DIRECTIVE .. (" "):rep(words.MAX_BYTES)
  end
  return words.cut(table.concat(lines), words.MAX_BYTES + #lines * #DIRECTIVE)
end

-- Whether there are such lines after the first command, which nobody reads.
function words.has_late(script)
  return script:find("\n" .. DIRECTIVE, math.max(header_end(script), 1), true) ~= nil
end

-- Returns a comment that is meant for Plimsoll; "" for any other.
function words.of_comment(comment)
  if comment:sub(1, #words.COMMENT_START) ~= words.COMMENT_START then
    return ""
  end
  return words.cut(comment, #words.COMMENT_START + words.MAX_COMMENT_BYTES)
end

return words
