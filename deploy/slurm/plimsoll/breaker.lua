-- A circuit breaker: after some failures in a row a proof is due, and without it nothing
-- is tried for a while; then one try decides. Knows no clock: times are handed in, in
-- seconds.
local breaker = {}
breaker.__index = breaker

function breaker.new(failures, pause_seconds)
  return setmetatable({ limit = failures, pause = pause_seconds, count = 0 }, breaker)
end

-- Whether one may try.
function breaker:allows(now)
  return not self.open_until or now >= self.open_until
end

function breaker:is_open()
  return self.open_until ~= nil
end

function breaker:succeeded()
  self.count, self.open_until = 0, nil
end

-- Returns whether there are so many failures in a row that it should open.
function breaker:failed()
  self.count = self.count + 1
  return self.count >= self.limit
end

-- Returns true where it was not open before.
function breaker:open(now)
  local opened = not self.open_until
  self.open_until = now + self.pause
  return opened
end

return breaker
