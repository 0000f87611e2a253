-- snowflake_set_default() makes a generator the default of a key column.
--
-- The steps, all in the caller's transaction and with at most the caller's rights:
--
-- 1. check that this is a whole table and the caller's: before any lock, so that
--    strangers cannot take one, and again under the lock;
-- 2. lock the table with all its descendants, as ALTER TABLE would: nobody inserts
--    until the transaction ends;
-- 3. find the column; refuse what is impossible, here and in columns that refer to it;
-- 4. refuse existing values at or above the IDs to come, and tables that do not take
--    these IDs. Values and conditions are read as the table's owner, since code
--    attached to the table is the owner's;
-- 5. ALTER TABLE, which reaches all descendants; look whether it has reached them.
--
-- A table that Citus distributes has its default on all nodes: before the lock, all of
-- them are asked whether they can issue (citus.sql). Citus does not change the default of
-- a distribution column, so such a table is made a local one between the checks and the
-- change, and distributed again after it.
--
-- No function here is SECURITY DEFINER. The functions in schema _snowflake are
-- parts of snowflake_set_default(), and grant nothing: a caller of one alone sees what the
-- catalogs show to everybody, or gets the error of a missing privilege.
--
-- Each function has a search_path with no schema in which others may create objects. So
-- unqualified names and operators below are PostgreSQL's own, and PostgreSQL writes
-- users' objects with their schemas. In a statement made by format(), %I is a name, %L
-- a literal, and %s what PostgreSQL has written as SQL: a regclass or a type, which are
-- quoted names, or an expression of the catalogs. The price: event triggers that fire on
-- our ALTER TABLE run with this search_path, and need one of their own.
--
-- What a user, another node or the library calls also fixes how names and texts are written and
-- read, for all that it calls: quote_all_identifiers would quote a default that is compared with
-- the one that is wanted, and standard_conforming_strings = off would take the backslashes from
-- regular expressions. Statements that are handed to the caller mean the same with both.
--
-- In a REPEATABLE READ transaction the catalogs are read as of its first statement. A
-- table that another session has changed since then leads to an error, or to a message
-- about its former state, and a foreign key that was made since then is not checked.
-- Values are always read as of now.

-- The next four are the only parts that SQL cannot have; src/sql/column.rs and convert.rs have them.

-- Locks a generator, by default the default one, and returns how many bits its IDs have, the
-- next ID, whether all later IDs are above it, when IDs reach a value, and whether
-- snowflake_advance() can go beyond that value.
CREATE FUNCTION _snowflake.next_id_range(
    generator regclass, value bigint,
    OUT source regclass, OUT is_default boolean, OUT bits integer,
    OUT next_id bigint, OUT sorted boolean, OUT reached text, OUT can_advance boolean)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_next_id_range';

-- Warns if this server has no worker ID that the generator can use.
CREATE FUNCTION _snowflake.warn_if_not_ready(generator regclass) RETURNS void
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_warn_if_not_ready';

-- The value that a query returns, as of now, read as the owner of a table, whose rights the
-- caller must have, and in a security-restricted operation as REINDEX is.
CREATE FUNCTION _snowflake.read_as_owner(relation regclass, query text) RETURNS text
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_read_as_owner';
-- It runs a statement in the same way, and returns the number of rows.
CREATE FUNCTION _snowflake.run_as_owner(relation regclass, statement text) RETURNS bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_run_as_owner';

-- The qualified name of a relation, for messages.
CREATE FUNCTION _snowflake.name(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- The schema of temporary tables has a number, which says nothing to people.
    SELECT CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END
        || '.' || quote_ident(c.relname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = relation
$$;

-- The type and modifier of a column, with domains replaced by their base types.
CREATE FUNCTION _snowflake.base_type(type oid, typmod integer, OUT base regtype, OUT modifier integer)
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    -- A domain's own modifier, as in a domain over numeric(10,2), is its base type's.
    WITH RECURSIVE types (id, modifier, depth) AS (
        SELECT type, typmod, 0
        UNION ALL
        SELECT t.typbasetype, t.typtypmod, s.depth + 1
        FROM types AS s JOIN pg_type AS t ON t.oid = s.id AND t.typtype = 'd')
    SELECT s.id::regtype, s.modifier FROM types AS s ORDER BY s.depth DESC LIMIT 1
$$;

-- What the default of a column, or the expression of a generated one, names: a row for each
-- function, and for each sequence or other relation. Whose default draws from which sequence is
-- asked here only. PostgreSQL's own functions, such as nextval(), are left out, since pg_depend
-- leaves them out. The view has its names bound when it is made, out of reach of what others make.
SET LOCAL search_path = pg_catalog, pg_temp;
CREATE VIEW _snowflake.defaults AS
SELECT d.adrelid AS relation, d.adnum AS number,
    CASE p.refclassid WHEN 'pg_proc'::regclass THEN p.refobjid END AS function,
    CASE p.refclassid WHEN 'pg_class'::regclass THEN p.refobjid END AS sequence
FROM pg_attrdef AS d
JOIN pg_depend AS p ON p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
WHERE p.refclassid IN ('pg_proc'::regclass, 'pg_class'::regclass) AND p.refobjsubid = 0;

-- The default generator, and the functions that a default calls: those of the extension, and not
-- what has their names. The owner of the extension's schema may rename it, and make another one of
-- its name. So no function of these scripts names that schema when it runs: what it calls there has
-- its name bound when it is made.
CREATE FUNCTION _snowflake.default_generator() RETURNS regclass
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT '@extschema@.snowflake_default'::regclass;
END;
CREATE FUNCTION _snowflake.issuer(of_default boolean) RETURNS regprocedure
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT CASE WHEN of_default THEN '@extschema@.snowflake_nextval()'::regprocedure
        ELSE '@extschema@.snowflake_nextval(regclass)'::regprocedure END;
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- The columns of a table whose defaults take IDs of a generator, and the generator, or NULL
-- if the default names none or several: a default that gets the generator as text at run
-- time, or that chooses among several, is no evidence of which one made an ID.
CREATE FUNCTION _snowflake.default_generators(relation regclass, OUT number smallint, OUT generator regclass)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    WITH uses (number, maker, generator) AS (
        SELECT d.number, f.oid, CASE WHEN 'regclass'::regtype <> ALL (f.proargtypes::oid[]) THEN s.id
            WHEN d.sequence = s.id OR _snowflake.label(d.sequence) IS NOT NULL THEN d.sequence END
        FROM _snowflake.defaults AS d
        CROSS JOIN (SELECT _snowflake.default_generator()::oid) AS s (id)
        LEFT JOIN pg_proc AS f ON f.oid = d.function
            AND f.proname IN ('snowflake_nextval', 'snowflake_nextval_block')
            AND EXISTS (
                SELECT FROM pg_depend AS e
                JOIN pg_extension AS x ON x.oid = e.refobjid AND x.extname = 'snowflake_id'
                WHERE e.classid = 'pg_proc'::regclass AND e.objid = f.oid AND e.refclassid = 'pg_extension'::regclass
                  AND e.deptype = 'e')
        WHERE d.relation = default_generators.relation)
    SELECT u.number, CASE WHEN count(DISTINCT u.generator) = 1 THEN min(u.generator)::regclass END
    FROM uses AS u GROUP BY u.number HAVING count(u.maker) > 0
$$;

-- A column in its table, which comes first, and in all partitions and child tables, with its
-- default and the functions that the default calls. The planner expects a large family, and
-- would read, and compile the reading of, whole catalogs.
CREATE FUNCTION _snowflake.inheritance(
    relation regclass, column_name name,
    OUT member regclass, OUT number smallint, OUT identity "char",
    OUT expression text, OUT functions oid[])
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE ROWS 10 SET search_path = pg_catalog, pg_temp
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_seqscan = off SET jit = off
AS $$
    WITH RECURSIVE family (id) AS (
        SELECT relation::oid
        UNION
        SELECT i.inhrelid FROM family AS f JOIN pg_inherits AS i ON i.inhparent = f.id)
    SELECT c.oid::regclass, a.attnum, a.attidentity, pg_get_expr(d.adbin, d.adrelid),
        ARRAY(SELECT u.function FROM _snowflake.defaults AS u
              WHERE u.relation = c.oid AND u.number = a.attnum AND u.function IS NOT NULL)
    FROM family AS f
    JOIN pg_class AS c ON c.oid = f.id
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = column_name AND NOT a.attisdropped
    LEFT JOIN pg_attrdef AS d ON d.adrelid = c.oid AND d.adnum = a.attnum
    ORDER BY c.oid <> relation, n.nspname, c.relname
$$;

-- Refuses what is no table, a part of a table, or not the caller's.
CREATE FUNCTION _snowflake.check_table(relation regclass, column_name name) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    class pg_class;
    table_name text := _snowflake.name(relation);
    root text;
BEGIN
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = relation;
    -- The second condition is about the present, as the head of this file explains.
    IF NOT FOUND OR pg_table_is_visible(relation) IS NULL THEN
        RAISE EXCEPTION 'relation with OID % does not exist', relation::oid
            USING ERRCODE = 'undefined_table';
    ELSIF class.relkind = 'v' THEN
        RAISE EXCEPTION '% is not a table', table_name
            USING ERRCODE = 'wrong_object_type', DETAIL = 'A view keeps no rows.',
            HINT = 'Name the table that keeps its rows.';
    ELSIF class.relkind = 'f' THEN
        RAISE EXCEPTION '% is a foreign table', table_name
            USING ERRCODE = 'wrong_object_type',
            DETAIL = 'Rows that are inserted where they are kept would not get a default that is set here.',
            HINT = 'Set the default where its rows are kept.';
    ELSIF class.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% is not a table', table_name
            USING ERRCODE = 'wrong_object_type', HINT = 'Name a table, partitioned or not.';
    ELSIF relation::oid < 12000 THEN
        -- FirstUnpinnedObjectId: PostgreSQL itself tells its catalogs by this number.
        RAISE EXCEPTION 'permission denied: % is a system catalog', table_name
            USING ERRCODE = 'insufficient_privilege';
    ELSIF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of table %', table_name
            USING ERRCODE = 'insufficient_privilege',
            HINT = format('Role %I owns it: that role and its members can do this.',
                pg_get_userbyid(class.relowner));
    ELSIF class.relpersistence = 't' AND class.relnamespace <> pg_my_temp_schema() THEN
        RAISE EXCEPTION '% is a temporary table of another session', table_name
            USING ERRCODE = 'feature_not_supported';
    ELSIF class.relispartition THEN
        root := _snowflake.name(pg_partition_root(relation));
        RAISE EXCEPTION 'cannot set the default of partition % apart from table %', table_name, root
            USING ERRCODE = 'wrong_object_type',
            DETAIL = 'Rows that are inserted through a partitioned table get the default of that table, not of the partition.',
            HINT = format('Set it on table %s, which reaches all partitions: snowflake_set_default(%s)',
                root, concat_ws(', ', quote_literal(root), quote_literal(column_name)));
    END IF;
END
$$;

-- The named column or that of the primary key, if it is one that can have the default.
CREATE FUNCTION _snowflake.key_column(relation regclass, column_name name) RETURNS name
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := _snowflake.name(relation);
    key smallint[] := (SELECT k.conkey FROM pg_constraint AS k
                       WHERE k.conrelid = relation AND k.contype = 'p');
    example name;
    advice text := 'Name the column that the IDs are for, which needs to be of type bigint.';
    it pg_attribute;
    described text;
    alter_column text;
    declared text;
BEGIN
    IF column_name IS NULL AND cardinality(key) IS DISTINCT FROM 1 THEN
        -- The example is the column most likely meant: a number that refers to no other
        -- table, of the primary key if there is one. A column that counts comes first,
        -- then a bigint, then the last of a key and the first of a table.
        SELECT a.attname INTO example
        FROM pg_attribute AS a
        CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS t
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attgenerated = '' AND (key IS NULL OR a.attnum = ANY (key))
          AND t.base IN ('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype)
          AND NOT EXISTS (
              SELECT FROM pg_constraint AS f
              WHERE f.conrelid = a.attrelid AND f.contype = 'f' AND a.attnum = ANY (f.conkey))
        ORDER BY (a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid), '') LIKE '%nextval(%') DESC,
            t.base = 'bigint'::regtype DESC, array_position(key, a.attnum) DESC, a.attnum
        LIMIT 1;
        IF FOUND THEN
            advice := format('Name the column, as in snowflake_set_default(%L, %L)', table_name, example);
        END IF;
        IF key IS NULL THEN
            RAISE EXCEPTION 'table % has no primary key', table_name
                USING ERRCODE = 'undefined_object', HINT = advice;
        END IF;
        RAISE EXCEPTION 'primary key of table % has more than one column', table_name
            USING ERRCODE = 'ambiguous_column', HINT = advice,
            DETAIL = format('Its columns are: %s.', (
                SELECT string_agg(format('%I %s', a.attname, format_type(a.atttypid, a.atttypmod)),
                    ', ' ORDER BY array_position(key, a.attnum))
                FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum = ANY (key)));
    END IF;

    SELECT a.* INTO it FROM pg_attribute AS a
    WHERE a.attrelid = relation AND NOT a.attisdropped
      AND CASE WHEN column_name IS NULL THEN a.attnum = key[1] ELSE a.attname = column_name END;
    described := format('column "%s" of table %s', coalesce(it.attname, column_name), table_name);
    alter_column := format('ALTER TABLE %s ALTER COLUMN %I', table_name, coalesce(it.attname, column_name));
    IF NOT FOUND THEN
        RAISE EXCEPTION '% does not exist', described
            USING ERRCODE = 'undefined_column',
            HINT = 'Give the name as it is stored: without quotes, and in lower case unless it was created in quotes.';
    ELSIF it.attnum < 1 THEN
        RAISE EXCEPTION '% is a system column', described
            USING ERRCODE = 'feature_not_supported';
    ELSIF it.attgenerated <> '' THEN
        RAISE EXCEPTION '% is a generated column', described
            USING ERRCODE = 'generated_always',
            DETAIL = 'Its values are computed from other columns: it has no default.',
            -- A column that is not stored has no values to keep.
            HINT = CASE it.attgenerated
                WHEN 's' THEN format('To make it a plain column that keeps its values: %s DROP EXPRESSION', alter_column)
                ELSE 'Add a bigint column for the IDs.' END;
    ELSIF (_snowflake.base_type(it.atttypid, it.atttypmod)).base <> 'bigint'::regtype THEN
        declared := format_type(it.atttypid, it.atttypmod);
        RAISE EXCEPTION '% is of type %, not bigint', described, declared
            USING ERRCODE = 'datatype_mismatch', DETAIL = 'IDs have up to 63 bits.',
            HINT = CASE
                WHEN it.atttypid IN ('integer'::regtype, 'smallint'::regtype) THEN
                    format('Convert it with the columns that refer to it, by snowflake_convert() of extension snowflake_id_convert. '
                        'By hand, change it first, and them too; each change rewrites its table: %s TYPE bigint', alter_column)
                ELSE 'Add a bigint column for the IDs.' END;
    END IF;
    RETURN it.attname;
END
$$;

-- Refuses a column if columns refer to it that cannot hold IDs, since no row of theirs could
-- refer to a new row.
CREATE FUNCTION _snowflake.check_references(
    relation regclass, column_name name, generator regclass, bits integer) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    narrow text;
    remedy text;
BEGIN
    -- A foreign key may refer to the table, or to one of its partitions or child tables,
    -- in which the column may have another number. PostgreSQL keeps copies of a foreign
    -- key for partitions (conparentid): the original says it all. The column of a
    -- partition is named, and can be altered, in the whole table only.
    WITH referring AS (
        SELECT DISTINCT _snowflake.name(a.attrelid) AS table_name,
            a.attnum, a.attname, a.atttypid, a.atttypmod
        FROM _snowflake.inheritance(relation, column_name) AS f
        JOIN pg_constraint AS k ON k.confrelid = f.member AND k.contype = 'f' AND k.conparentid = 0
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS h ON h.attrelid = k.conrelid AND h.attnum = u.here
        JOIN pg_attribute AS a ON a.attrelid = coalesce(pg_partition_root(k.conrelid), k.conrelid)
            AND a.attname = h.attname
        WHERE u.there = f.number),
    -- How many bits of a whole number fit in each column; null if there is no limit. All
    -- numbers of so many bits have d decimal digits if 2 ^ bits <= 10 ^ d; with a scale
    -- below 0 the last digits are lost. A column that is no integer can refer to one
    -- where a cast allows it.
    room AS (
        SELECT r.*, CASE t.base
            WHEN 'smallint'::regtype THEN 15
            WHEN 'integer'::regtype THEN 31
            WHEN 'real'::regtype THEN 24
            WHEN 'double precision'::regtype THEN 53
            WHEN 'numeric'::regtype THEN
                CASE WHEN m[2]::integer < 0 THEN 0
                     ELSE floor((m[1]::integer - m[2]::integer)::numeric * log(2, 10)) END
            END AS bits
        FROM referring AS r
        CROSS JOIN _snowflake.base_type(r.atttypid, r.atttypmod) AS t
        CROSS JOIN regexp_match(format_type(t.base, t.modifier), '^numeric\((\d+),(-?\d+)\)$') AS m)
    SELECT string_agg(format('%s.%I is of type %s', r.table_name, r.attname, format_type(r.atttypid, r.atttypmod)),
            ', ' ORDER BY r.table_name, r.attnum),
        string_agg(format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint', r.table_name, r.attname),
            '; ' ORDER BY r.table_name, r.attnum)
    INTO narrow, remedy
    FROM room AS r
    WHERE r.bits < check_references.bits;

    IF narrow IS NOT NULL THEN
        RAISE EXCEPTION 'foreign keys that refer to column "%" of table % cannot hold IDs',
            column_name, _snowflake.name(relation)
            USING ERRCODE = 'datatype_mismatch',
            DETAIL = format('IDs of generator %s have up to %s bits, and %s.',
                _snowflake.name(generator), bits, narrow),
            HINT = format('Change them first; each change rewrites its table: %s', remedy);
    END IF;
END
$$;

-- Refuses values that IDs to come could repeat or would sort before; returns the greatest
-- value. A policy that hides rows from the owner is an error here: the greatest value may
-- be among them.
CREATE FUNCTION _snowflake.check_values(relation regclass, column_name name, generator regclass) RETURNS bigint
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    -- If the column has an index, this is its end.
    greatest_value bigint := _snowflake.read_as_owner(
        relation, format('SELECT max(%I) FROM %s', column_name, relation));
    ids record;
    table_name text := _snowflake.name(relation);
    generator_name text := _snowflake.name(generator);
BEGIN
    IF greatest_value IS NULL THEN
        RETURN NULL;
    END IF;
    ids := _snowflake.next_id_range(generator, greatest_value);
    IF NOT ids.sorted THEN
        RAISE NOTICE 'values of %.% were not compared with IDs to come', table_name, quote_ident(column_name)
            USING DETAIL = format('IDs of generator %s do not sort by time, so that '
                'any value of the column may be issued a second time.', generator_name),
            HINT = 'A unique constraint refuses a row whose ID is there already.';
    ELSIF greatest_value >= ids.next_id THEN
        RAISE EXCEPTION 'column "%" of table % holds %, which is not below the IDs to come',
            column_name, table_name, greatest_value
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = format('IDs of generator %s are at %s now', generator_name, ids.next_id) || CASE
                WHEN ids.reached IS NOT NULL THEN
                    format(', and reach that value on %s. Until then '
                        'its row sorts after newer rows; then it may be issued a second time.', ids.reached)
                ELSE '; that value is above all of them, and would sort after newer rows for ever.' END,
            HINT = CASE WHEN ids.can_advance THEN
                format('Make all further IDs greater, then call this again: SELECT snowflake_advance(%L, %s)',
                    generator_name, greatest_value)
                ELSE 'That value is further ahead than snowflake_advance() goes. Find out where it comes from: '
                    'give those rows other keys, or give the IDs a column of their own.' END;
    END IF;
    RETURN greatest_value;
END
$$;

-- Refuses a column whose domain refuses the next ID, and a table that is partitioned by the
-- column and has no partition for the ID.
CREATE FUNCTION _snowflake.check_takes(relation regclass, column_name name, generator regclass) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    it pg_attribute;
    next_id bigint := (_snowflake.next_id_range(generator, NULL)).next_id;
    table_name text := _snowflake.name(relation);
    generator_name text := _snowflake.name(generator);
    condition record;
    holds boolean;
BEGIN
    SELECT a.* INTO it FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attname = column_name;
    -- Conditions of domains, and those of the table and its descendants on this column alone, are
    -- tried with an ID of the base type, if nothing but PostgreSQL's own is in them: then no code of
    -- others runs, and no name of theirs is looked up. One that is neither true nor false is no
    -- reason to refuse.
    FOR condition IN
        WITH RECURSIVE domains AS (
            SELECT t.oid, t.typbasetype, 0 AS depth FROM pg_type AS t
            WHERE t.oid = it.atttypid AND t.typtype = 'd'
            UNION ALL
            SELECT t.oid, t.typbasetype, d.depth + 1
            FROM domains AS d JOIN pg_type AS t ON t.oid = d.typbasetype AND t.typtype = 'd'),
        conditions AS (
            SELECT k.oid, pg_get_expr(k.conbin, 0) AS code, 'value'::name AS name, d.depth, k.conname, d.oid AS own,
                format('column "%s" of table %s is of domain %s, which refuses IDs',
                    column_name, table_name, format_type(it.atttypid, it.atttypmod)) AS refuses
            FROM domains AS d JOIN pg_constraint AS k ON k.contypid = d.oid AND k.contype = 'c'
            UNION ALL
            SELECT k.oid, pg_get_expr(k.conbin, k.conrelid), column_name, -1, k.conname, f.member,
                format('constraint %I of table %s refuses IDs', k.conname, _snowflake.name(f.member))
            FROM _snowflake.inheritance(relation, column_name) AS f
            JOIN pg_constraint AS k ON k.conrelid = f.member AND k.contype = 'c' AND k.conkey = ARRAY[f.number]
            WHERE pg_get_constraintdef(k.oid) NOT LIKE '% NOT ENFORCED' AND (f.member = relation OR k.conislocal))
        SELECT c.* FROM conditions AS c
        WHERE NOT EXISTS (
            SELECT FROM pg_depend AS d WHERE d.classid = 'pg_constraint'::regclass AND d.objid = c.oid
              AND (d.refclassid, d.refobjid) <> (CASE WHEN c.depth < 0 THEN 'pg_class'::regclass ELSE 'pg_type'::regclass END, c.own))
        ORDER BY c.depth DESC, c.conname
    LOOP
        BEGIN
            holds := _snowflake.read_as_owner(relation, format(
                'SELECT (%s) IS NOT FALSE FROM (SELECT %L::bigint AS %I) AS row', condition.code, next_id, condition.name));
        EXCEPTION WHEN numeric_value_out_of_range THEN
            holds := false;
        END;
        IF NOT holds THEN
            RAISE EXCEPTION '%: %', condition.refuses, condition.code
                USING ERRCODE = 'check_violation',
                DETAIL = format('It does not hold for ID %s of generator %s.', next_id, generator_name),
                HINT = 'Change or drop the constraint first, or the type of the column.';
        END IF;
    END LOOP;

    -- The next INSERT into a table that is partitioned by the column needs a partition
    -- for the ID. Sub-partitions, and keys of more than one column, are not checked. A
    -- default partition that is alone has no condition.
    SELECT coalesce(string_agg(coalesce('(' || pg_get_partition_constraintdef(i.inhrelid) || ')', 'true'), ' OR ')
            FILTER (WHERE i.inhrelid IS NOT NULL), 'false') AS code
    INTO condition
    FROM pg_partitioned_table AS p
    LEFT JOIN pg_inherits AS i ON i.inhparent = p.partrelid
    WHERE p.partrelid = relation AND p.partstrat IN ('l', 'r')
      AND p.partnatts = 1 AND p.partattrs[0] = it.attnum AND p.partclass[0] < 16384 AND it.atttypid = 'bigint'::regtype
    GROUP BY p.partrelid;
    IF FOUND THEN
        holds := _snowflake.read_as_owner(relation, format(
            'SELECT %s FROM (SELECT %L::bigint AS %I) AS row', condition.code, next_id, column_name));
        IF holds IS NOT TRUE THEN
            RAISE EXCEPTION 'no partition of table % takes IDs', table_name
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = format('It is partitioned by column "%s", and ID %s of generator %s fits none of its partitions.',
                    column_name, next_id, generator_name),
                HINT = format('Make one first, as in: CREATE TABLE ... PARTITION OF %s '
                    'FOR VALUES FROM (snowflake_min_id(''2026-01-01Z'')) TO (snowflake_min_id(''2027-01-01Z''))', table_name);
        END IF;
    END IF;
END
$$;

-- What refuses IDs, as casts of the column to a narrower type show: an index, a generated column. Their texts are read, and
-- nothing is run. Not certain is a cast beside other things.
CREATE FUNCTION _snowflake.refusals(relation regclass, column_name name, OUT note text, OUT is_certain boolean) RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format(CASE WHEN c.is_certain THEN '%s of table %s refuses IDs: %s'
        ELSE '%s of table %s has a cast to a narrower type, and INSERT fails if it casts IDs: %s' END, e.described, _snowflake.name(relation), e.text), c.is_certain
    FROM (
        SELECT i.indpred IS NULL, format('index %I', c.relname), u.text
        FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
        CROSS JOIN LATERAL (
            SELECT pg_get_indexdef(i.indexrelid, p.place, false) FROM generate_series(1, i.indnatts::integer) AS p (place) WHERE i.indkey[p.place - 1] = 0
            UNION ALL
            SELECT pg_get_expr(i.indpred, i.indrelid)) AS u (text)
        WHERE i.indrelid = relation
        UNION ALL
        SELECT true, format('generated column %I', a.attname), pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated <> ''
        WHERE d.adrelid = relation) AS e (is_always, described, text)
    CROSS JOIN LATERAL (SELECT translate(e.text, '()', '')) AS p (text)
    CROSS JOIN LATERAL (SELECT e.is_always AND p.text ~ '::(integer|smallint)$' AND starts_with(p.text, quote_ident(column_name) || '::') AND p.text !~ '[ ,]') AS c (is_certain)
    WHERE strpos(p.text, quote_ident(column_name) || '::') > 0 AND p.text ~ '::(integer|smallint)'
$$;

-- The roles that may insert rows, or values of some columns, and may not take IDs: their names, or PUBLIC.
CREATE FUNCTION _snowflake.without_usage(relation regclass, generator regclass) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END
    FROM pg_class AS t
    CROSS JOIN LATERAL (
        SELECT coalesce(t.relacl, acldefault('r', t.relowner))
        UNION ALL
        SELECT a.attacl FROM pg_attribute AS a WHERE a.attrelid = t.oid AND a.attacl IS NOT NULL AND NOT a.attisdropped) AS l (acl)
    CROSS JOIN aclexplode(l.acl) AS e
    WHERE t.oid = relation AND e.privilege_type = 'INSERT' AND NOT has_sequence_privilege(e.grantee, generator, 'USAGE, UPDATE')
$$;

-- This function is not STRICT: NULL for the column or the generator has a meaning.
CREATE FUNCTION _snowflake.snowflake_set_default(
    relation regclass, column_name name,
    generator regclass, drop_sequence boolean) RETURNS text
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    ids record;
    source_name text;
    issue regprocedure; -- the function that the default calls
    new_default text;   -- the default, as a statement has it
    wanted text;        -- the default, as PostgreSQL shows it with this search_path
    locked text;
    key name;
    table_name text;
    key_name text;
    member record;
    first record;
    children integer := 0;
    all_set boolean := true;
    changes text[] := '{}';
    no_longer_always text[] := '{}';
    unused regclass[] := '{}'; -- sequences to drop
    fates text[] := '{}';      -- what becomes of all sequences
    greatest_value bigint;
    refused text;              -- the first thing of the table that refuses IDs
    distribution jsonb;        -- null unless Citus knows the table
    is_rebuilt boolean := false;
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'table must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION 'cannot execute snowflake_set_default() in a read-only transaction'
            USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    PERFORM _snowflake.check_table(relation, column_name);

    ids := _snowflake.next_id_range(generator, NULL);
    source_name := _snowflake.name(ids.source);
    issue := _snowflake.issuer(ids.is_default);
    IF ids.is_default THEN
        new_default := issue;
        wanted := issue;
    ELSE
        new_default := format('%s(%L::regclass)', issue::regproc, source_name);
        -- Unlike %L, PostgreSQL shows a backslash as it is.
        wanted := format('%s(''%s''::regclass)', issue::regproc, replace(source_name, '''', ''''''));
    END IF;

    distribution := _snowflake.distribution(relation);
    IF distribution IS NOT NULL THEN
        PERFORM _snowflake.check_nodes(ids.source,
            (SELECT pg_get_userbyid(c.relowner) FROM pg_class AS c WHERE c.oid = relation));
    END IF;

    -- LOCK TABLE takes a name. If the table was renamed, dropped or moved to another
    -- schema while we waited, or if its name is another table's by now, we look again.
    LOOP
        locked := relation;
        BEGIN
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', locked);
        EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
            locked := NULL;
        END;
        PERFORM _snowflake.check_table(relation, column_name);
        EXIT WHEN locked = relation::text;
    END LOOP;

    key := _snowflake.key_column(relation, column_name);
    table_name := _snowflake.name(relation);
    key_name := format('%s.%I', table_name, key);

    -- All messages about the old defaults are made before they are gone.
    FOR member IN
        SELECT f.*, coalesce(f.expression = wanted, false) AND issue = ANY (f.functions) AS is_set,
            format('%s.%I', _snowflake.name(f.member), key) AS name
        FROM _snowflake.inheritance(relation, key) AS f
    LOOP
        all_set := all_set AND member.is_set;
        IF member.member = relation THEN
            first := member;
        ELSE
            children := children + 1;
        END IF;
        -- A child is mentioned if its default or identity was its own.
        IF member.member = relation OR member.identity <> '' AND first.identity = ''
            OR member.expression <> coalesce(first.expression, '') AND NOT member.is_set
        THEN
            changes := changes || (member.name || ': ' || CASE
                WHEN member.identity <> '' THEN 'identity replaced by default ' || wanted
                WHEN member.is_set THEN format('default %s kept', wanted)
                WHEN member.expression IS NULL THEN 'default set to ' || wanted
                ELSE format('default %s replaced by %s', member.expression, wanted) END);
        END IF;
        -- What is said of the table holds for its descendants.
        IF member.identity = 'a' AND (member.member = relation OR first.identity <> 'a') THEN
            no_longer_always := no_longer_always || member.name;
        END IF;
    END LOOP;
    changes[1] := changes[1] || CASE children WHEN 0 THEN '' WHEN 1 THEN ', also in 1 child table'
        ELSE format(', also in %s child tables', children) END;

    -- These sequences would be dropped with the column.
    FOR member IN
        SELECT c.oid::regclass AS sequence, d.deptype
        FROM pg_depend AS d
        JOIN pg_class AS c ON c.oid = d.objid AND c.relkind = 'S'
        JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
          AND d.refobjid = relation AND d.refobjsubid = first.number AND d.deptype IN ('a', 'i')
          AND c.oid <> ids.source
        ORDER BY n.nspname, c.relname
    LOOP
        IF member.deptype <> 'i' AND drop_sequence THEN
            unused := unused || member.sequence;
        END IF;
        fates := fates || format('sequence %s %s', _snowflake.name(member.sequence), CASE
            WHEN member.deptype = 'i' THEN 'dropped with the identity'
            WHEN drop_sequence THEN 'dropped'
            ELSE 'kept' END);
    END LOOP;
    fates := fates || ARRAY(
        SELECT format('sequence %s kept, from which other tables draw too: %s', _snowflake.name(u.sequence),
            string_agg(DISTINCT _snowflake.name(o.relation), ', '))
        FROM _snowflake.defaults AS u JOIN pg_class AS c ON c.oid = u.sequence AND c.relkind = 'S'
        JOIN _snowflake.defaults AS o ON o.sequence = u.sequence AND o.relation NOT IN (SELECT f.member FROM _snowflake.inheritance(u.relation, key) AS f)
        WHERE u.relation = snowflake_set_default.relation AND u.number = first.number AND _snowflake.label(u.sequence) IS NULL
        GROUP BY u.sequence);
    IF drop_sequence AND fates = '{}' THEN
        fates := ARRAY['no sequence is owned by the column'];
    END IF;

    IF all_set THEN
        -- The default may have stayed on this node. Citus sends it once more, unless the
        -- column is the distribution column.
        IF distribution->>'column' = key THEN
            PERFORM _snowflake.check_default(relation, key, ids.source);
        ELSIF distribution IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', relation, key, new_default);
        END IF;
        changes := ARRAY[format('%s: default is %s already', key_name, wanted)];
    ELSE
        IF distribution IS NOT NULL AND first.identity <> '' THEN
            RAISE EXCEPTION 'Citus cannot drop the identity of %', key_name
                USING ERRCODE = 'feature_not_supported',
                DETAIL = 'It can neither alter nor undistribute a table with an identity.',
                HINT = format('Make a table with %I bigint DEFAULT %s, distribute it, and copy the rows.', key, wanted);
        END IF;
        PERFORM _snowflake.check_references(relation, key, ids.source, ids.bits);
        greatest_value := _snowflake.check_values(relation, key, ids.source);
        PERFORM _snowflake.check_takes(relation, key, ids.source);
        refused := (SELECT r.note FROM _snowflake.refusals(relation, key) AS r WHERE r.is_certain LIMIT 1);
        IF refused IS NOT NULL THEN
            RAISE EXCEPTION '%', refused
                USING ERRCODE = 'check_violation', DETAIL = format('The next ID of generator %s is %s.', source_name, ids.next_id),
                HINT = 'Change or drop it first: with such a default, each INSERT would fail.';
        END IF;
        changes := changes || coalesce('greatest value so far ' || greatest_value, 'no values so far');

        is_rebuilt := coalesce(distribution->>'column' = key, false);
        IF is_rebuilt THEN
            distribution := distribution || jsonb_build_object('comments',
                ARRAY(SELECT _snowflake.comments(relation)));
            relation := _snowflake.undistribute(relation, key, distribution);
        END IF;

        -- One by one, the table first: from 17 on, a partitioned table's identity goes
        -- with those of its partitions; any other identity belongs to one table.
        LOOP
            SELECT f.* INTO member FROM _snowflake.inheritance(relation, key) AS f
            WHERE f.identity <> '' LIMIT 1;
            EXIT WHEN NOT FOUND;
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', member.member, key);
        END LOOP;
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', relation, key, new_default);
        -- Names stay the same under our lock, except those of schemas, which nothing
        -- locks. And in a REPEATABLE READ transaction an old default may still be seen.
        IF EXISTS (
            SELECT FROM _snowflake.inheritance(relation, key) AS f
            WHERE f.expression IS DISTINCT FROM wanted OR issue <> ALL (f.functions))
        THEN
            RAISE EXCEPTION 'could not set the default of %', key_name
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Another session has renamed its schema, or has changed the table since this transaction began.',
                HINT = 'Try again.';
        END IF;

        -- From here on, what does not prevent the default, but keeps rows or users from
        -- using it, or changes what users may do.
        -- Inserting needs USAGE, setting a default does not: a table may be set up before its users are.
        IF is_rebuilt THEN
            PERFORM _snowflake.distribute(relation, distribution);
            changes[1] := changes[1] || ', distributed again';
        END IF;
        changes := changes || ARRAY(
            SELECT format('new rows go to default partition %s, unless you make others: CALL snowflake_partition(...)', _snowflake.name(p.partdefid))
            FROM pg_partitioned_table AS p
            WHERE p.partrelid = relation AND p.partstrat = 'r' AND p.partdefid <> 0 AND p.partnatts = 1 AND p.partattrs[0] = first.number
              AND p.partclass[0] < 16384
              AND _snowflake.read_as_owner(relation, format('SELECT %s FROM (SELECT %L::bigint AS %I) AS row',
                  coalesce(pg_get_partition_constraintdef(p.partdefid), 'true'), ids.next_id, key))::boolean
            UNION ALL
            SELECT r.note FROM _snowflake.refusals(relation, key) AS r
            UNION ALL
            SELECT format('roles that insert rows need: GRANT USAGE ON SEQUENCE %s TO %s', source_name, string_agg(w.role, ', ' ORDER BY w.role))
            FROM _snowflake.without_usage(relation, ids.source) AS w (role) HAVING count(*) > 0);
        -- A table may also be set up before its server is.
        PERFORM _snowflake.warn_if_not_ready(ids.source);
        -- If the column refers to another table's key, all rows may give its value.
        FOR member IN
            SELECT k.conname FROM pg_constraint AS k
            WHERE k.contype = 'f' AND k.conparentid = 0 AND k.conrelid = relation
              AND first.number = ANY (k.conkey)
            ORDER BY k.conname
        LOOP
            RAISE NOTICE '% is a foreign key, constraint %', key_name, quote_ident(member.conname)
                USING HINT = 'A new ID is in no other table: rows that get an ID by default will violate the constraint.';
        END LOOP;
        FOR i IN 1 .. cardinality(no_longer_always) LOOP
            RAISE NOTICE '% is no longer GENERATED ALWAYS', no_longer_always[i]
                USING DETAIL = 'A default gives way to any value that a statement gives.',
                HINT = 'To keep values out, GRANT INSERT and UPDATE on the other columns only.';
        END LOOP;
    END IF;

    -- Another object that uses the sequence stops the drop; the error names it.
    FOR i IN 1 .. cardinality(unused) LOOP
        EXECUTE format('DROP SEQUENCE %s', unused[i]);
    END LOOP;
    RETURN array_to_string(changes || fates, '; ');
END
$$;

-- Not STRICT: NULL for the column or the generator has a meaning.
CREATE FUNCTION snowflake_set_default(
    relation regclass, column_name name DEFAULT NULL,
    generator regclass DEFAULT NULL, drop_sequence boolean DEFAULT false) RETURNS text
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake.hold();
    SELECT _snowflake.snowflake_set_default(relation, column_name, generator, drop_sequence);
END;
COMMENT ON FUNCTION snowflake_set_default(regclass, name, regclass, boolean) IS
    'makes a generator the default of a bigint column, by default that of the primary key, '
    'in place of the column''s default or identity; returns what was done';
