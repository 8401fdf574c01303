-- Clients that wait, in the order they came.
CREATE TABLE waiters (
    name   TEXT    NOT NULL,
    turn   INTEGER NOT NULL,
    client BLOB    NOT NULL,
    until  INTEGER NOT NULL,
    PRIMARY KEY (name, turn)
) STRICT, WITHOUT ROWID;
