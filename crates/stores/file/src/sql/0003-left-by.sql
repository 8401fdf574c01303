-- Who gave a lingering name back: for those who look why it is not free.
ALTER TABLE names ADD COLUMN owner  TEXT;
ALTER TABLE names ADD COLUMN client BLOB;
ALTER TABLE names ADD COLUMN number INTEGER;
ALTER TABLE names ADD COLUMN first  INTEGER;
ALTER TABLE names ADD COLUMN lease  INTEGER;
ALTER TABLE names ADD COLUMN since  INTEGER;
ALTER TABLE names ADD COLUMN host   TEXT;
ALTER TABLE names ADD COLUMN pid    INTEGER;
ALTER TABLE names ADD COLUMN label  TEXT;
