-- What makes the times and fences of this file comparable: one row.
CREATE TABLE meta (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    epoch   INTEGER NOT NULL, -- grows with every boot of a machine that comes to this file
    boot    TEXT    NOT NULL, -- the boot whose clock counts
    machine TEXT    NOT NULL,
    base    INTEGER NOT NULL, -- the store's time, in nanoseconds since 2020, where the clock of that boot read zero
    ceiling INTEGER NOT NULL, -- on the disk before a fence below it is given out
    swept   TEXT    NOT NULL  -- the last name that was looked at for what can be forgotten
) STRICT;

-- One row a hold. What is said of its holder is the same in every row of that holder.
CREATE TABLE holds (
    name    TEXT    NOT NULL,
    owner   TEXT    NOT NULL, -- empty: the request itself
    client  BLOB    NOT NULL,
    number  INTEGER NOT NULL,
    given   INTEGER NOT NULL, -- given back, and remembered so that it counts once
    turn    INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    first   INTEGER NOT NULL,
    len     INTEGER NOT NULL,
    lease   INTEGER NOT NULL,
    since   INTEGER NOT NULL,
    broken  INTEGER NOT NULL,
    kept    INTEGER NOT NULL,
    host    TEXT,
    pid     INTEGER,
    label   TEXT,
    PRIMARY KEY (name, owner, client, number, given)
) STRICT, WITHOUT ROWID;

-- Names that are free, but lingering or with a fence ahead of the clock.
CREATE TABLE names (
    name          TEXT    PRIMARY KEY,
    last          INTEGER NOT NULL,
    lingers_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
