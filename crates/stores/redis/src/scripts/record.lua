-- A record that somebody damaged is as good as none.
local function load_record(key, tag)
  local packed = redis.pcall('GET', key)
  if type(packed) ~= 'string' then return nil end
  local ok, record = pcall(cmsgpack.unpack, packed)
  if not ok or type(record) ~= 'table' or tag and record[1] ~= tag then return nil end
  return record
end

local function save_record(key, record, ms) redis.call('SET', key, cmsgpack.pack(record), 'PX', ms) end
