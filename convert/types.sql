-- The sets that the functions of a plan hand to each other, as arrays of these rows.

-- A column that the caller names in `also`: in full, with the key whose values it has; null if he names
-- none; or a column that has no keys.
CREATE TYPE _snowflake_convert.also_column AS (given text, relation oid, name name, origin oid, origin_name name, has_keys boolean);

-- What the caller asks for.
CREATE TYPE _snowflake_convert.request AS (
    relations regclass[], are_named boolean, also _snowflake_convert.also_column[], generator regclass, set_default boolean);

-- A key, or a column of a foreign key that reaches it, in the topmost table that has it: whether
-- its type or its values change, and the key that its new values come from.
CREATE TYPE _snowflake_convert.key_column AS (
    relation oid, name name, number smallint, type oid, base oid, is_key boolean, is_altered boolean,
    origin oid, origin_name name, origins bigint);

-- A key whose old values are replaced, with the time of a row.
CREATE TYPE _snowflake_convert.old_key AS (relation oid, name name, time_name name, expression text, problem text);

-- A column of a table, or one that is generated from it, in the table itself, a partition or a
-- child table.
CREATE TYPE _snowflake_convert.member AS (
    relation oid, name name, member oid, number smallint, expression text, is_altered boolean, is_generated boolean);

-- What depends on columns, with the statements that drop it and make it again.
CREATE TYPE _snowflake_convert.object AS (
    class oid, id oid, level integer, described text, owner oid, drop_statement text, statements text[]);

-- A column in its table or in a partition, with its copy.
CREATE TYPE _snowflake_convert.copied_column AS (
    root oid, relation oid, kind "char", table_name text, name name, number smallint, is_key boolean, copy name, copy_number smallint);

-- What a conversion has to do.
CREATE TYPE _snowflake_convert.work AS (
    generator regclass,
    set_default boolean,
    also _snowflake_convert.also_column[],
    worker_id bigint,       -- of old rows that get IDs; null if they keep their keys
    in_use boolean,         -- the tables stay in use
    columns _snowflake_convert.key_column[],
    keys _snowflake_convert.old_key[],
    map text,               -- the table of old and new values
    members _snowflake_convert.member[],
    tables oid[],           -- the members that change, as pairs
    numbers smallint[],
    objects _snowflake_convert.object[],    -- by level
    sources oid[],          -- the tables to lock
    statistics oid[]);      -- those of members that change
