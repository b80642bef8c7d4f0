-- Engram pools for the jobs of a cluster, by Slurm's plugin burst_buffer/lua.
--
-- Slurm calls the functions slurm_bb_* on slurmctld's node. They read the directives of a job
-- script, write a plan, and have it done on the job's nodes by `python -m engram.slurm`, in the
-- name of the job's user. Settings stand in engram.conf beside this file; docs/guide/slurm.md
-- says what each does. Two of the functions, job_process and paths, hold Slurm up while they run:
-- they start no process.
--
-- Lua 5.1 to 5.4. Slurm before 23.02 passes neither uid nor gid but to `setup`, which notes them.

local HERE = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./")
local DEFAULTS = {
   directive = "BB_LUA", runner = "local", base = "/dev/shm", check = "yes",
   helper = "/opt/engram/bin/python -P -m engram.slurm",
   state = "/var/spool/slurmctld/engram", notes = "/run/engram", capacity = "0",
   fsdax = "", devdax = "",
}
local RUNNERS = {
   ["local"] = "{command}",
   ssh = "ssh -o BatchMode=yes root@{node} {command}",
}
local KEYS = {
   pool = { "capacity", "mode", "pool" },
   stage_in = { "dest", "existing", "name", "source", "type" },
   stage_out = { "dest", "existing", "name", "source" },
   create_persistent = { "capacity", "mode", "name", "pool" },
   use_persistent = { "name" },
   destroy_persistent = { "name" },
}
local VALUES = {
   pool = { "engram" },
   mode = { "tmpfs", "fsdax", "devdax" },
   type = { "file", "directory" },
   existing = { "refuse", "overwrite", "update" },
}
local OVER = { "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "DEADLINE" }
local UNITS = { k = 1, m = 2, g = 3, t = 4, p = 5 }
local UNCOUNTED = 2 ^ 50 -- Slurm knows no pool without a size
local NAMED = 3 -- so many nodes that have failed are named
local UID_FIRST = 2302 -- since Slurm 23.02 a look at the status says who looks

-- A refusal is an error with a table: its text is for the user, and has no place in this file.
local function refuse(text, ...)
   error({ text = select("#", ...) > 0 and text:format(...) or text }, 0)
end

local function contains(list, word)
   for _, each in ipairs(list) do
      if each == word then return true end
   end
   return false
end

-- Small files -----------------------------------------------------------------------------------

local function quoted(word)
   return "'" .. tostring(word):gsub("'", "'\\''") .. "'"
end

local function content(path)
   local file = io.open(path, "r")
   if not file then return nil end
   local text = file:read("*a")
   file:close()
   return text
end

local function write(path, text)
   local file, why = io.open(path .. ".new", "w")
   if not file then refuse("%s cannot be written: %s", path, why) end
   file:write(text)
   file:close()
   assert(os.rename(path .. ".new", path))
end

-- `key = value` in each line; # begins a comment.
local function pairs_of(text)
   local found = {}
   for line in (text or ""):gmatch("[^\n]+") do
      local key, value = line:match("^%s*([%w_]+)%s*=%s*(.-)%s*$")
      if key then found[key] = value end
   end
   return found
end

local function settings()
   local text = content(HERE .. "engram.conf")
   if not text then refuse("%sengram.conf is missing: docs/guide/slurm.md has one", HERE) end
   local said, conf = pairs_of(text), {}
   for key in pairs(said) do
      if not DEFAULTS[key] then refuse("engram.conf: %s is no setting", key) end
   end
   for key, value in pairs(DEFAULTS) do conf[key] = said[key] or value end
   conf.runner = RUNNERS[conf.runner] or conf.runner
   if not conf.runner:find("{command}", 1, true) then
      refuse("engram.conf: runner=%s: it is local, ssh, or a command with {command}", conf.runner)
   end
   return conf
end

-- What is remembered of a job or a persistent pool: a file of `key = value` in the state folder.
local function recall(conf, name)
   local text = content(conf.state .. "/" .. name)
   return text and pairs_of(text)
end

local function remember(conf, name, facts)
   local lines = {}
   for key, value in pairs(facts) do
      lines[#lines + 1] = key .. " = " .. tostring(value):gsub("[%c]+", " ") .. "\n"
   end
   table.sort(lines)
   write(conf.state .. "/" .. name, table.concat(lines))
end

local function remembered(conf, prefix)
   local names, listing = {}, io.popen("ls -1 " .. quoted(conf.state) .. " 2>/dev/null")
   for name in listing:lines() do
      if name:match("^" .. prefix .. "%-[^.]+$") then names[#names + 1] = name end
   end
   listing:close()
   return names
end

-- Directives ------------------------------------------------------------------------------------

-- Lines of directives with their numbers: up to the first that is no comment, as Slurm reads them.
local function directives(conf, script)
   local text = content(script)
   if not text then refuse("the job script %s cannot be read", script) end
   local found, number, start, rest = {}, 0, "#" .. conf.directive, nil
   for line in (text .. "\n"):gmatch("(.-)\n") do
      number = number + 1
      if line:sub(1, 1) ~= "#" then
         if line ~= "" then break end
      elseif line:sub(1, #start) == start then
         local said = line:sub(#start + 1)
         if rest then rest.text = rest.text .. said
         else rest = { number = number, text = said } end
         if rest.text:sub(-1) == "\\" then
            rest.text = rest.text:sub(1, -2)
         else
            found[#found + 1], rest = rest, nil
         end
      else
         rest = nil
      end
   end
   return found
end

-- Words of a line; a value with blanks stands in double quotes.
local function words(text)
   local found = {}
   local marked = text:gsub('"([^"]*)"', function(inside)
      return (inside:gsub("%s", function(blank) return "\1" .. blank:byte() .. "\2" end))
   end)
   for word in marked:gmatch("%S+") do
      found[#found + 1] = word:gsub("\1(%d+)\2", function(code) return string.char(code) end)
   end
   return found
end

local function bytes(text)
   local number, unit, rest = text:match("^(%d+)(%a?)(%a*)$")
   unit, rest = (unit or ""):lower(), (rest or ""):lower()
   local power = unit == "" and 0 or UNITS[unit]
   if not number or not power or not contains({ "", "b", "ib" }, rest) or tonumber(number) == 0 then
      refuse("capacity=%s is no size: write it as 20G or 512M", text)
   end
   return string.format("%.0f", tonumber(number) * (rest == "b" and 1000 or 1024) ^ power)
end

local function checked(verb, given)
   for key, value in pairs(given) do
      if VALUES[key] and not contains(VALUES[key], value) then
         refuse("%s=%s: it is one of %s", key, value, table.concat(VALUES[key], ", "))
      end
   end
   if given.name and not given.name:match("^[%w][%w_]*$") then
      refuse("name=%s: a name has letters, digits and _", given.name)
   end
   local outside = verb == "stage_in" and "source" or "dest"
   local inside = verb == "stage_in" and "dest" or "source"
   if verb == "stage_in" or verb == "stage_out" then
      if not given.source then refuse("source= is missing") end
      if verb == "stage_out" and not given.dest then refuse("dest= is missing") end
      if given[outside]:sub(1, 1) ~= "/" then
         refuse("%s=%s: write the whole path, from /", outside, given[outside])
      end
      if verb == "stage_in" and not given.dest then
         given.dest = given.source:match("([^/]+)/*$")
         if not given.dest then refuse("dest= is missing: / has no name of its own") end
      end
      if ("/" .. given[inside] .. "/"):find("/../", 1, true) then
         refuse("%s=%s: a path in the pool has no ..", inside, given[inside])
      end
   elseif verb == "pool" or verb == "create_persistent" then
      if not given.pool then refuse("pool=engram is missing: Slurm asks for it") end
      if not given.capacity then refuse("capacity= is missing") end
      given.capacity = bytes(given.capacity)
   end
   if verb:match("_persistent$") and not given.name then refuse("name= is missing") end
   return given
end

local function directive(text)
   local said, verb, given = words(text), "pool", {}
   if said[1] and not said[1]:find("=", 1, true) then verb = table.remove(said, 1) end
   if not KEYS[verb] then
      refuse("%s is no directive: there are stage_in, stage_out, create_persistent, "
         .. "use_persistent, destroy_persistent, and pool=engram capacity=…", verb)
   end
   for _, word in ipairs(said) do
      local key, value = word:match("^([%w_]+)=(.+)$")
      if not key then refuse("%s is no word of the kind key=value", word) end
      if not contains(KEYS[verb], key) then
         refuse("%s= is unknown here: there are %s", key, table.concat(KEYS[verb], "=, ") .. "=")
      end
      if given[key] then refuse("%s= stands there twice", key) end
      given[key] = value
   end
   if verb == "pool" and given.mode and #said == 1 then verb = "mode" end
   return verb, checked(verb, given)
end

-- Which pool a copy goes to or comes from: the one named, the job's own, or the only one.
local function pool_of(plan, copy)
   if copy.name then
      if not plan.named[copy.name] then refuse("name=%s: the job has no such pool", copy.name) end
      return copy.name
   end
   if plan.own then return "" end
   if #plan.pools == 1 then return plan.pools[1].name end
   refuse(#plan.pools == 0 and "it has no pool: add a line with pool=engram capacity=…"
      or "the job has several pools: say which, by name=")
end

local function added(conf, plan, number, verb, given)
   local device = given.mode and given.mode:match("^%a+dax$")
   if device and conf[device] == "" then
      refuse("mode=%s: this cluster has no such memory (engram.conf names none)", device)
   end
   if verb == "stage_in" or verb == "stage_out" then
      given.number = number
      table.insert(verb == "stage_in" and plan.into or plan.out, given)
      return
   end
   if verb == "mode" then
      if plan.mode then refuse("the job has a mode already") end
      plan.mode, plan.mode_line = given.mode, number
      return
   end
   local name = verb == "pool" and "" or given.name
   local there = plan.named[name]
   if there and verb == "destroy_persistent" and there.verb == "use_persistent" then
      there.verb = verb
      return
   elseif there and not (verb == "use_persistent" and there.verb == "destroy_persistent") then
      refuse(verb == "pool" and "the job has a pool already" or "name=%s stands there twice", name)
   elseif there then
      return
   end
   local pool = { name = name, verb = verb, capacity = given.capacity, mode = given.mode or "" }
   plan.named[name], plan.own = pool, plan.own or verb == "pool"
   table.insert(plan.pools, pool)
end

local function plan_of(conf, script)
   local plan = { pools = {}, named = {}, into = {}, out = {}, own = false }
   local function at(number, body)
      local done, why = pcall(body)
      if done then return end
      if type(why) ~= "table" then error(why, 0) end
      refuse("line %d: #%s: %s", number, conf.directive, why.text)
   end
   for _, line in ipairs(directives(conf, script)) do
      at(line.number, function() added(conf, plan, line.number, directive(line.text)) end)
   end
   if plan.mode then
      at(plan.mode_line, function()
         if not plan.own then refuse("mode= is for a pool of the job's own, and it has none") end
         if plan.named[""].mode ~= "" then refuse("the pool has a mode already") end
         plan.named[""].mode = plan.mode
      end)
   end
   for _, copies in ipairs({ plan.into, plan.out }) do
      for _, copy in ipairs(copies) do
         at(copy.number, function() copy.pool = pool_of(plan, copy) end)
      end
   end
   return plan
end

-- Plans, as the helper reads them ---------------------------------------------------------------

local function json(value)
   if type(value) ~= "table" then
      return '"' .. tostring(value):gsub('[%c"\\]', function(sign)
         return string.format("\\u%04x", sign:byte())
      end) .. '"'
   end
   local parts = {}
   if value.list then
      for _, each in ipairs(value.list) do parts[#parts + 1] = json(each) end
      return "[" .. table.concat(parts, ",") .. "]"
   end
   for key, each in pairs(value) do parts[#parts + 1] = json(key) .. ":" .. json(each) end
   return "{" .. table.concat(parts, ",") .. "}"
end

local function plan_text(conf, job, facts, plan, pools, node)
   local several = select(2, (facts.nodes or ""):gsub("%S+", "")) > 1
   return json({
      job = job, uid = facts.uid, gid = facts.gid, node = several and node or "",
      base = conf.base, fsdax = conf.fsdax, devdax = conf.devdax, again = facts.again or "no",
      pools = { list = pools }, ["in"] = { list = plan.into }, out = { list = plan.out },
   })
end

-- Have the helper do something on each of the nodes at once; give what they say together. Of what
-- is `settled` by it the state goes, even if Slurm ends this script meanwhile.
local function have_done(conf, job, facts, plan, verb, pools, settled)
   local lines, stems, sum = {}, {}, { files = 0, bytes = 0, new = 0, text = "" }
   for node in (facts.nodes or ""):gmatch("%S+") do
      if not node:match("^[%w_.-]+$") then refuse("%s is no name of a node", node) end
      local stem = string.format("%s/job-%s.%s.%s", conf.state, job, verb, node)
      write(stem .. ".plan", plan_text(conf, job, facts, plan, pools, node))
      local runner = verb == "measure" and RUNNERS["local"] or conf.runner
      local command = runner:gsub("{(%a+)}", { node = node, command = conf.helper .. " " .. verb })
      local files = quoted(stem)
      lines[#lines + 1] = string.format(
         "%s <%s.plan >%s.out 2>%s.err; c=$?; echo $c >%s.rc; exit $c",
         command, files, files, files, files)
      stems[#stems + 1] = { stem = stem, node = node }
   end
   local files = quoted(conf.state .. "/job-" .. job)
   local list = string.format("%s.%s.list", files, verb)
   write(conf.state .. "/job-" .. job .. "." .. verb .. ".list", table.concat(lines, "\n") .. "\n")
   -- One step of a job at a time, and none but `drop` once its teardown has begun.
   -- Slurm has SIGCHLD blocked, for which a shell waits that waits for several: xargs does not.
   local work = "xargs -P 64 -d '\\n' -n 1 sh -c <" .. list
   if verb ~= "drop" then work = string.format("test -e %s.ended || ", files) .. work end
   for _, name in ipairs(settled or {}) do
      work = work .. " && rm -f " .. quoted(conf.state .. "/" .. name)
   end
   -- Slurm 22.05 ends all scripts of a job that is cancelled before it runs, its teardown too.
   os.execute(string.format("%sflock %s.lock sh -c %s", verb == "drop" and "setsid " or "", files,
      quoted(work)))
   os.remove(conf.state .. "/job-" .. job .. "." .. verb .. ".list")
   local failed, more = {}, ""
   for _, each in ipairs(stems) do
      local said = pairs_of(content(each.stem .. ".out"))
      local code = (content(each.stem .. ".rc") or "none"):match("%w+")
      for _, key in ipairs({ "files", "bytes", "new" }) do
         sum[key] = sum[key] + (tonumber(said[key]) or 0)
      end
      if said.text and said.text ~= "" then sum.text = said.text end
      if code ~= "0" then
         local last = (content(each.stem .. ".err") or ""):match("([^\n]+)%s*$")
         failed[#failed + 1] = string.format("on %s: %s", each.node,
            said.text ~= "" and said.text or last or "status " .. code)
      end
      for _, ending in ipairs({ ".plan", ".out", ".err", ".rc" }) do
         os.remove(each.stem .. ending)
      end
   end
   if #failed > NAMED then
      more = string.format("; and on %d more", #failed - NAMED)
   end
   if #failed > 0 then
      refuse("%s%s", table.concat(failed, "; ", 1, math.min(#failed, NAMED)), more)
   end
   return sum
end

local function pools_where(plan, condition)
   local found = {}
   for _, pool in ipairs(plan.pools) do
      if condition(pool) then found[#found + 1] = pool end
   end
   return found
end

local function lies(pool)
   return pool.verb == "use_persistent" or pool.verb == "destroy_persistent"
end

local function is_to_be_made(pool)
   return pool.verb == "create_persistent"
end

local function registry(facts, pool)
   return "pool-" .. facts.uid .. "-" .. pool.name
end

-- What is known of the persistent pools of a plan: where they lie, and how large they are.
local function look_up(conf, job, facts, plan)
   for _, pool in ipairs(plan.pools) do
      local known = pool.name ~= "" and recall(conf, registry(facts, pool))
      if pool.verb == "create_persistent" then
         if known and known.job ~= job then
            refuse("the persistent pool %s is there already, on %s: take use_persistent",
               pool.name, known.nodes)
         end
      elseif pool.name ~= "" then
         if not known or known.made ~= "yes" then
            refuse("there is no persistent pool %s of this user%s", pool.name,
               known and " yet: job " .. known.job .. " makes it"
                  or ": create_persistent makes one")
         end
         pool.capacity, pool.mode = known.capacity, known.mode
         if plan.nodes and plan.nodes ~= known.nodes then
            refuse("the pools of the job lie on %s and on %s", plan.nodes, known.nodes)
         end
         plan.nodes = known.nodes
      end
   end
end

local function job_facts(conf, job)
   local facts = recall(conf, "job-" .. job)
   if not facts then refuse("nothing is known of job %s in %s", job, conf.state) end
   local plan = plan_of(conf, conf.state .. "/job-" .. job .. ".script")
   look_up(conf, job, facts, plan)
   return facts, plan
end

local ending = false -- whether this is the teardown of a job

-- Slurm begins a teardown while other functions are at work for the job: they stop at this.
local function stop_if_ended(conf, job)
   if not ending and content(conf.state .. "/job-" .. job .. ".ended") then
      refuse("job %s was ended meanwhile", job)
   end
end

local function note(conf, job, facts, stage, text, sum)
   stop_if_ended(conf, job)
   facts.stage, facts.text, facts.since = stage, text or "", os.date("%Y-%m-%dT%H:%M:%S")
   if sum then
      facts.files = string.format("%.0f", sum.files)
      facts.bytes = string.format("%.0f", sum.bytes)
   end
   remember(conf, "job-" .. job, facts)
   local done, why = pcall(stop_if_ended, conf, job)
   if done then return end
   if facts.ran ~= "yes" then os.remove(conf.state .. "/job-" .. job) end
   error(why, 0)
end

local function forget(conf, job)
   os.remove(conf.state .. "/job-" .. job)
   os.remove(conf.state .. "/job-" .. job .. ".script")
   os.remove(conf.state .. "/job-" .. job .. ".lock")
end

local function ask_slurm(job)
   local answer = io.popen("scontrol -o show job " .. tonumber(job) .. " 2>&1")
   local text = answer:read("*a")
   answer:close()
   return text
end

-- The nodes of a job, and whether it has run before.
local function nodes_of(job)
   local text = ask_slurm(job)
   local listed = text:match(" NodeList=(%S+)")
   if not listed or listed == "(null)" then
      refuse("Slurm names no nodes of job %s: %s", job, text:sub(1, 200))
   end
   if listed:find("[", 1, true) then
      local answer = io.popen("scontrol show hostnames " .. quoted(listed))
      listed = answer:read("*a"):gsub("%s+", " "):gsub(" $", "")
      answer:close()
   else
      listed = listed:gsub(",", " ")
   end
   return listed, (text:match(" Restarts=(%d+)") or "0") ~= "0" and "yes" or "no"
end

-- What Slurm calls ------------------------------------------------------------------------------

local bb = {}

function bb.job_process(script)
   plan_of(settings(), script)
end

function bb.pools()
   local conf = settings()
   local total = conf.capacity == "0" and UNCOUNTED or tonumber(bytes(conf.capacity))
   for _, name in ipairs(remembered(conf, "pool")) do
      total = total - (tonumber((recall(conf, name) or {}).capacity) or 0)
   end
   return string.format('{"pools":[{"id":"engram","quantity":%.0f,"granularity":1}]}',
      math.max(total, 1))
end

-- Tear down what Slurm has given up: jobs that are over, whose teardown it has ended itself.
local function sweep(conf)
   local active = {}
   local answer = io.popen("squeue -h -o %A 2>/dev/null")
   for job in answer:read("*a"):gmatch("%d+") do active["job-" .. job] = true end
   answer:close()
   for _, name in ipairs(remembered(conf, "job")) do
      local facts, job = recall(conf, name), name:match("%d+")
      if facts and not active[name] and facts.stage ~= "left" then
         local text = ask_slurm(job)
         local over = contains(OVER, text:match(" JobState=(%u+)"))
            and contains({ "teardown", "complete" }, text:match(" BurstBufferState=(%S+)"))
         if over or text:find("Invalid job id", 1, true) then
            pcall(bb.job_teardown, job, nil, "true")
            ending = false
         end
      end
   end
end

function bb.setup(job, uid, gid, _, _, script)
   local conf = settings()
   local state = quoted(conf.state)
   os.execute(string.format("mkdir -p -m 700 %s; find %s -name 'job-*.*' ! -name '*.script' "
      .. "! -name '*.lock' -mmin +1440 -delete", state, state))
   sweep(conf)
   os.remove(conf.state .. "/job-" .. job .. ".ended")
   local plan, facts = plan_of(conf, script), recall(conf, "job-" .. job) or {}
   facts.uid, facts.gid = uid, gid
   write(conf.state .. "/job-" .. job .. ".script", content(script))
   look_up(conf, job, facts, plan)
   for _, pool in ipairs(pools_where(plan, is_to_be_made)) do
      if not recall(conf, registry(facts, pool)) then
         remember(conf, registry(facts, pool), {
            uid = uid, name = pool.name, job = job, capacity = pool.capacity, mode = pool.mode,
            made = "no", nodes = "",
         })
      end
   end
   if plan.nodes then
      local where = plan.nodes:gsub(" ", ",")
      os.execute(string.format("scontrol update JobId=%d ReqNodeList=%s >/dev/null 2>&1",
         tonumber(job), quoted(where)))
   end
   note(conf, job, facts, "planned")
end

function bb.data_in(job)
   local conf = settings()
   local facts, plan = job_facts(conf, job)
   if #plan.into == 0 then return end
   if conf.check == "yes" then
      note(conf, job, facts, "checking")
      local here = setmetatable({ nodes = "slurmctld" }, { __index = facts })
      local sum = have_done(conf, job, here, plan, "measure", plan.pools)
      note(conf, job, facts, "checked", "", sum)
   end
   -- Where the pools lie already, copying costs nobody a node.
   local there = pools_where(plan, lies)
   local early = { out = {}, into = {} }
   for _, copy in ipairs(plan.into) do
      if lies(plan.named[copy.pool]) then table.insert(early.into, copy) end
   end
   if #early.into == 0 then return end
   facts.nodes = plan.nodes
   note(conf, job, facts, "staging in early")
   local sum = have_done(conf, job, facts, early, "begin", there)
   note(conf, job, facts, "staged in early", sum.text, sum)
end

function bb.test_data_in() end

-- Each node of a job gets the capacity that was asked for.
function bb.real_size(job)
   local _, plan = job_facts(settings(), job)
   local total = 0
   for _, pool in ipairs(plan.pools) do
      if pool.verb == "pool" or pool.verb == "create_persistent" then
         total = total + tonumber(pool.capacity)
      end
   end
   if total == 0 then return end
   local nodes = ask_slurm(job):match(" NumNodes=(%d+)") or 1
   return string.format("%.0f", total * nodes)
end

-- Where the helper puts a pool (`Plan.folder` there).
local function folder_of(conf, job, facts, pool)
   local name = pool.name == "" and "job-" .. job or facts.uid .. "-" .. pool.name
   return (pool.mode == "fsdax" and conf.fsdax or conf.base) .. "/engram-" .. name
end

function bb.paths(job, _, path_file)
   local conf = settings()
   local facts, plan = job_facts(conf, job)
   local lines = {}
   for _, pool in ipairs(plan.pools) do
      local folder = folder_of(conf, job, facts, pool)
      local suffix = (pool.name == "" or (#plan.pools == 1 and not plan.own)) and ""
         or "_" .. pool.name
      lines[#lines + 1] = "ENGRAM_POOL" .. suffix .. "=" .. folder .. "/pool\n"
      lines[#lines + 1] = "ENGRAM_MOUNT" .. suffix .. "=" .. folder .. "/mount\n"
   end
   write(path_file, table.concat(lines))
end

function bb.pre_run(job)
   local conf = settings()
   local facts, plan = job_facts(conf, job)
   facts.nodes, facts.again = nodes_of(job)
   if plan.nodes and plan.nodes ~= facts.nodes then
      refuse("the pools of the job lie on %s, and it got %s: submit with --nodelist",
         plan.nodes, facts.nodes)
   end
   facts.began, facts.ran, facts.out = "yes", facts.ran or "no", ""
   note(conf, job, facts, "staging in")
   local sum = have_done(conf, job, facts, plan, "begin", plan.pools)
   for _, pool in ipairs(pools_where(plan, is_to_be_made)) do
      local known = recall(conf, registry(facts, pool))
      known.made, known.nodes = "yes", facts.nodes
      remember(conf, registry(facts, pool), known)
   end
   facts.ran = "yes"
   note(conf, job, facts, "running", sum.text, sum)
end

function bb.post_run() end

function bb.data_out(job)
   local conf = settings()
   local facts, plan = job_facts(conf, job)
   if #plan.out == 0 or facts.began ~= "yes" then return end
   note(conf, job, facts, "staging out")
   local sum = have_done(conf, job, facts, plan, "end", plan.pools)
   facts.out = sum.new == 0 and "verified" or "left"
   note(conf, job, facts, "staged out", sum.text, sum)
end

function bb.test_data_out() end

-- Drop what may go: the pool of a job that never ran has copies only, one without stage_out is
-- scratch, and what was staged out has been read again. All else stays, and is named.
function bb.job_teardown(job, _, hurry)
   local conf = settings()
   ending = true
   pcall(write, conf.state .. "/job-" .. job .. ".ended", "")
   local facts = recall(conf, "job-" .. job)
   if not facts then
      forget(conf, job)
      return
   end
   local plan = plan_of(conf, conf.state .. "/job-" .. job .. ".script")
   pcall(look_up, conf, job, facts, plan) -- a pool that is gone is none to drop
   local safe = facts.ran ~= "yes" or #plan.out == 0 or facts.out == "verified"
   local own = pools_where(plan, function(p) return p.verb == "pool" end)
   local ends = pools_where(plan, function(p)
      return p.verb == "destroy_persistent" and facts.ran == "yes" and hurry ~= "true" end)
   local unmade = pools_where(plan, function(p)
      return is_to_be_made(p) and (recall(conf, registry(facts, p)) or {}).made ~= "yes" end)
   local dropped = {}
   for _, list in ipairs({ safe and own or {}, safe and ends or {}, unmade }) do
      for _, pool in ipairs(list) do dropped[#dropped + 1] = pool end
   end
   if facts.began == "yes" and #dropped > 0 then
      note(conf, job, facts, "dropping")
      local settled = safe and { "job-" .. job, "job-" .. job .. ".script" } or {}
      for _, pool in ipairs(dropped) do
         if pool.name ~= "" then settled[#settled + 1] = registry(facts, pool) end
      end
      have_done(conf, job, facts, { into = {}, out = {} }, "drop", dropped, settled)
   end
   for _, pool in ipairs(dropped) do
      if pool.name ~= "" then os.remove(conf.state .. "/" .. registry(facts, pool)) end
   end
   if safe then
      forget(conf, job)
      return
   end
   local where = {}
   for _, copy in ipairs(plan.out) do
      where[#where + 1] = copy.source .. " of "
         .. folder_of(conf, job, facts, plan.named[copy.pool]) .. "/pool"
   end
   local text = string.format("unverified results were left on %s: %s; %s", facts.nodes,
      table.concat(where, ", "),
      facts.text ~= "" and facts.text or "the job was ended in a hurry")
   note(conf, job, facts, "left", text)
   slurm.log_info("burst_buffer.lua: %s", text)
   return text
end

-- The nodes of a row, as --nodelist takes them.
local function listed(facts)
   return ((facts.nodes or ""):gsub(" ", ","))
end

local function rows(conf, who, prefix, row)
   local found = {}
   for _, name in ipairs(remembered(conf, prefix)) do
      local facts = recall(conf, name)
      if facts and (not who or who == "0" or who == facts.uid) then
         found[#found + 1] = row(name:match("%-(.*)$"), facts)
      end
   end
   return found
end

function bb.get_status(...)
   local conf, who = settings(), nil
   local answer = io.popen("scontrol --version")
   local year, month = answer:read("*a"):match("(%d+)%.(%d+)")
   answer:close()
   if year and tonumber(year) * 100 + tonumber(month) >= UID_FIRST then who = (...) or "" end
   local form = "%-8s %-8s %-16s %-12s %10s %14s %-19s %s"
   local lines = { form:format("JOB", "UID", "STAGE", "NODES", "FILES", "BYTES", "SINCE",
      who and "TEXT" or "") }
   -- An older Slurm does not say who looks: then nobody sees what the sentences name.
   for _, line in ipairs(rows(conf, who, "job", function(job, facts)
      return form:format(job, facts.uid, facts.stage or "", listed(facts), facts.files or "0",
         facts.bytes or "0", facts.since or "", who and facts.text or "")
   end)) do lines[#lines + 1] = line end
   for _, line in ipairs(rows(conf, who, "pool", function(_, facts)
      return form:format(facts.job, facts.uid, "persistent", listed(facts), "", facts.capacity, "",
         who and facts.name or "")
   end)) do lines[#lines + 1] = line end
   return table.concat(lines, "\n") .. "\n"
end

-- Each function as Slurm knows it. Whatever goes wrong is a message, and never ends slurmctld.
local STAGES = { data_in = true, pre_run = true, data_out = true, setup = true,
   job_teardown = true }
for name, body in pairs(bb) do
   _G["slurm_bb_" .. name] = function(...)
      local given = { ... }
      local done, said = pcall(function() return body((unpack or table.unpack)(given)) end)
      if done then
         if said then return slurm.SUCCESS, said end
         return slurm.SUCCESS
      end
      local text = type(said) == "table" and said.text
         or "an error of the script: " .. tostring(said)
      if STAGES[name] then
         pcall(function()
            local conf = settings()
            local facts = recall(conf, "job-" .. given[1])
            if facts then note(conf, given[1], facts, name .. " failed", text) end
         end)
      end
      slurm.log_error("burst_buffer.lua: %s: %s", name, text)
      return slurm.ERROR, text
   end
end
