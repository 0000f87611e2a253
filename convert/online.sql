-- The conversion of tables that stay in use. snowflake_convert_steps() returns statements
-- that a client runs one by one, each in a transaction of its own, since PostgreSQL builds
-- indexes CONCURRENTLY in no other way. In psql:
--
--     SELECT statement FROM snowflake_convert_steps('{orders}') \gexec
--
-- 1. Each integer column gets a bigint column beside it, its copy; a trigger that fills the
--    copy; and a constraint that the copy equals the column, not validated yet.
-- 2. snowflake_convert_backfill() fills the copies of old rows, in small transactions.
-- 3. The constraint is validated: from here on, PostgreSQL itself vouches for the copies.
-- 4. Indexes on the copies are built CONCURRENTLY; foreign keys are added NOT VALID, then
--    validated.
-- 5. snowflake_convert_swap() does the rest in short transactions: it drops the columns,
--    and gives their copies the names, constraints, defaults, privileges and comments.
--
-- No step is stored. Each call looks at the catalogs, and returns what is left to do, so
-- that whatever was interrupted goes on, and nobody can change what another role will run.
-- Table _snowflake_convert.conversions has the progress of step 2 only: if its rows are lost, as
-- with the extension, old pages are read again, and if they are wrong, the constraint of step 3 finds that.
--
-- Until step 5, snowflake_convert_undo() returns the statements that remove everything.
--
-- Statements that lock a table go through snowflake_convert_run(), which waits for a lock
-- for half a second at most, since others queue behind it, and then tries again.
--
-- In a partitioned table, the columns, the trigger and the constraints are those of the
-- whole table, so that new partitions get them too. The filling, the indexes and the
-- foreign keys are those of each partition: PostgreSQL does them CONCURRENTLY or NOT VALID
-- there only.

CREATE TABLE _snowflake_convert.conversions (
    relation regclass PRIMARY KEY,
    pages_done bigint NOT NULL,
    pages bigint NOT NULL,
    rows_done bigint NOT NULL,
    rows_per_second double precision,
    started timestamptz NOT NULL,
    updated timestamptz NOT NULL,
    ended timestamptz,
    filled smallint[],
    to_validate name[]
);
COMMENT ON TABLE _snowflake_convert.conversions IS
    'progress of snowflake_convert_backfill(): one row for each table that is being converted, or was';
COMMENT ON COLUMN _snowflake_convert.conversions.pages_done IS 'pages of the table that have been filled in this pass';
COMMENT ON COLUMN _snowflake_convert.conversions.pages IS 'pages that the table had when the pass began';
COMMENT ON COLUMN _snowflake_convert.conversions.rows_done IS 'rows that have been filled since the conversion began';
COMMENT ON COLUMN _snowflake_convert.conversions.rows_per_second IS 'rows filled per second, of late';
COMMENT ON COLUMN _snowflake_convert.conversions.ended IS 'when the conversion was done or undone; null while it is not';
COMMENT ON COLUMN _snowflake_convert.conversions.filled IS
    'numbers of the copies that are filled in all rows: a copy that is made again has another number';
COMMENT ON COLUMN _snowflake_convert.conversions.to_validate IS 'after the swap: constraints to validate';
-- Everybody sees and changes the rows of their own tables only. The operator is named: see the
-- views of registry.sql.
ALTER TABLE _snowflake_convert.conversions ENABLE ROW LEVEL SECURITY;
CREATE POLICY owners ON _snowflake_convert.conversions USING (pg_catalog.pg_has_role(
    (SELECT c.relowner FROM pg_catalog.pg_class AS c WHERE c.oid OPERATOR(pg_catalog.=) relation), 'USAGE'));
COMMENT ON POLICY owners ON _snowflake_convert.conversions IS 'rows of the tables that the reader owns';

-- The name of the copy of a column, an index or a constraint.
CREATE FUNCTION _snowflake_convert.copy_name(name name) RETURNS name
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    -- A long name is cut, and told from others by a hash. The names of constraints have one
    -- character more.
    SELECT CASE WHEN octet_length(name::text) <= 54 THEN name || '__bigint'
        ELSE left(name::text, 10) || substr(md5(name::text), 1, 12) || '__bigint' END
$$;

-- The name of the function that fills the copies of a table.
CREATE FUNCTION _snowflake_convert.copy_function(relation regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%I.%I', n.nspname, _snowflake_convert.copy_name(c.relname))
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation
$$;

-- The number of the copy of a column in a table or partition; null if there is no copy. A copy
-- is told from a column of the user's by its comment, which it has in the whole table.
CREATE FUNCTION _snowflake_convert.copy_number(root regclass, column_name name, relation regclass) RETURNS smallint
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.attnum FROM pg_attribute AS r JOIN pg_attribute AS a ON a.attname = r.attname AND NOT a.attisdropped
    WHERE r.attrelid = root AND r.attname = _snowflake_convert.copy_name(column_name) AND NOT r.attisdropped
      AND col_description(root, r.attnum) = 'filled by snowflake_convert_steps()' AND a.attrelid = relation
$$;

-- The columns to change, also in all partitions, with their copies if there are any yet.
CREATE FUNCTION _snowflake_convert.copies(what _snowflake_convert.request,
    OUT root regclass, OUT relation regclass, OUT kind "char", OUT name name, OUT number smallint,
    OUT is_key boolean, OUT copy name, OUT copy_number smallint)
    RETURNS SETOF record LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT c.relation, f.member, t.relkind, c.name, f.number, c.is_key, _snowflake_convert.copy_name(c.name),
        _snowflake_convert.copy_number(c.relation, c.name, f.member)
    FROM _snowflake_convert.columns(what) AS c
    CROSS JOIN _snowflake.inheritance(c.relation, c.name) AS f
    JOIN pg_class AS t ON t.oid = f.member WHERE c.base <> 'bigint'::regtype
$$;

-- Whether a function may fill the copies of a table. A role that may put objects in the schema
-- of a table could make the function before we do. So its owner must have the rights of the
-- table's owner, who can make triggers anyway.
CREATE FUNCTION _snowflake_convert.is_copy_function(function regproc, relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pg_has_role(p.proowner, c.relowner, 'USAGE') AND l.lanname = 'plpgsql' AND NOT p.prosecdef AND p.proconfig IS NULL
        AND p.prorettype = 'trigger'::regtype AND p.prokind = 'f'
    FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang CROSS JOIN pg_class AS c WHERE p.oid = function AND c.oid = relation
$$;

-- Whether a table has the trigger that fills copies, with a function of its owner.
CREATE FUNCTION _snowflake_convert.is_copying(relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    -- BEFORE INSERT OR UPDATE FOR EACH ROW, without columns and conditions.
    SELECT EXISTS (
        SELECT FROM pg_trigger AS t
        WHERE t.tgrelid = relation AND t.tgname = '~snowflake_convert' AND t.tgenabled = 'A' AND t.tgtype = 23
          AND t.tgqual IS NULL AND cardinality(t.tgattr::smallint[]) = 0
          AND t.tgfoid = to_regprocedure(_snowflake_convert.copy_function(relation) || '()')
          AND _snowflake_convert.is_copy_function(t.tgfoid, relation))
$$;

-- An error unless a table has the trigger that fills copies.
CREATE FUNCTION _snowflake_convert.check_copying(relation regclass) RETURNS void
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT _snowflake_convert.is_copying(relation) THEN
        RAISE EXCEPTION 'trigger "~snowflake_convert" of table % does not call a function of the owner of the table',
                _snowflake.name(relation)
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = format('Look at function %s(), and at who can create objects in its schema.',
                _snowflake_convert.copy_function(relation));
    END IF;
END $$;

-- An error in transactions of other isolation levels.
CREATE FUNCTION _snowflake_convert.need_read_committed() RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'cannot convert keys in a transaction of isolation level %', current_setting('transaction_isolation')
            USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'A plan is made again when the tables are locked, and needs to see them as they are then.',
            HINT = 'Use READ COMMITTED: SET default_transaction_isolation = ''read committed''';
    END IF;
END $$;

-- The numbers of the columns that an index is made of.
CREATE FUNCTION _snowflake_convert.index_columns(index regclass) RETURNS smallint[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    -- Those in expressions and conditions too, and those of a constraint, which stands
    -- between its index and the columns.
    SELECT coalesce(array_agg(DISTINCT d.refobjsubid::smallint), '{}') FROM pg_index AS i
    JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = i.indrelid AND d.refobjsubid <> 0 WHERE i.indexrelid = index
      AND (d.classid = 'pg_class'::regclass AND d.objid = index
        OR d.classid = 'pg_constraint'::regclass AND d.objid IN (
            SELECT k.oid FROM pg_constraint AS k WHERE k.conindid = index AND k.conrelid = i.indrelid))
$$;

-- The next three are the only parts that SQL cannot have; src/sql/convert.rs has them.

-- An expression of an index, or for place 0 its condition, with other names for the columns of
-- the table; null if there is none.
CREATE FUNCTION _snowflake_convert.index_expression(index regclass, place integer, names name[]) RETURNS text
    LANGUAGE c STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_index_expression';

-- The rows of a query, read as _snowflake.run_as_owner() runs a statement.
CREATE FUNCTION _snowflake_convert.rows_as_owner(relation regclass, query text, OUT key bigint, OUT at timestamptz)
    RETURNS SETOF record LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'snowflake_internal_rows_as_owner';

-- Marks the progress of a table and of its partitions as ended. The row stays: no role has
-- DELETE on the table, since with it a role could lock the table, and hold up the conversions
-- of all others. Policies leave out the tables of others.
CREATE FUNCTION _snowflake_convert.end_conversion(relation regclass) RETURNS void
    LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE _snowflake_convert.conversions AS p SET ended = clock_timestamp(), pages_done = 0, filled = NULL, to_validate = NULL
    WHERE p.ended IS NULL AND p.relation IN (
        SELECT t.relid FROM pg_partition_tree(end_conversion.relation) AS t UNION ALL SELECT end_conversion.relation)
$$;

-- A statement that means the same in sessions with either standard_conforming_strings.
-- PostgreSQL writes the backslash of a text as it is. A session with
-- standard_conforming_strings = off would read another text.
CREATE FUNCTION _snowflake_convert.portable(statement text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(CASE WHEN strpos(t.parts[2], '\') > 0 THEN 'E' || replace(t.parts[2], '\', '\\') ELSE t.parts[1] END,
        '' ORDER BY t.place)
    FROM regexp_matches(statement, '((''(?:[^'']|'''')*'')|"(?:[^"]|"")*"|[^"'']+)', 'g') WITH ORDINALITY AS t (parts, place)
$$;

-- The statement that builds an index like another one on the copies of columns. The statement
-- is PostgreSQL's own, part by part. Columns, expressions and the condition are written anew,
-- from the catalogs. The swap compares the result with the index that it replaces.
CREATE FUNCTION _snowflake_convert.copy_index(index regclass, columns name[], OUT copy name, OUT definition text)
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    it record;
    names name[];       -- of the columns of the table, by number
    copies name[];      -- the same with those of the copies
    rest text;          -- of PostgreSQL's statement
    was text;           -- the next part of it
    become text;
    expression integer := 0;
BEGIN
    SELECT i.*, c.relname, s.spcname, _snowflake.name(i.indrelid) AS table_name INTO it FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
    LEFT JOIN pg_tablespace AS s ON s.oid = c.reltablespace WHERE i.indexrelid = index;
    SELECT array_agg(CASE WHEN a.attisdropped THEN '' ELSE a.attname END ORDER BY a.attnum),
        array_agg(CASE WHEN a.attisdropped THEN ''
            WHEN a.attname = ANY (columns) THEN _snowflake_convert.copy_name(a.attname) ELSE a.attname END ORDER BY a.attnum)
    INTO names, copies
    FROM pg_attribute AS a WHERE a.attrelid = it.indrelid AND a.attnum > 0;
    copy := _snowflake_convert.copy_name(it.relname);
    definition := format('%s INDEX CONCURRENTLY %I ON %s', CASE WHEN it.indisunique THEN 'CREATE UNIQUE' ELSE 'CREATE' END,
        copy, it.table_name);
    -- CREATE [UNIQUE] INDEX name ON [ONLY] table USING ..., where a name in quotes may have
    -- any text.
    rest := regexp_replace(pg_get_indexdef(index),
        '^CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^" ]+) ON (?:ONLY )?'
        '(?:(?:"(?:[^"]|"")*"|[^". ]+)\.)?(?:"(?:[^"]|"")*"|[^". ]+)(?= USING )', '');
    was := substring(rest FROM '^ USING (?:"(?:[^"]|"")*"|[^" (]+) \(');
    definition := definition || was;
    rest := substr(rest, length(was) + 1);
    FOR place IN 1 .. it.indnatts LOOP
        was := pg_get_indexdef(index, place, false);
        IF it.indkey[place - 1] <> 0 THEN
            become := quote_ident(copies[it.indkey[place - 1]]);
        ELSE
            expression := expression + 1;
            become := _snowflake_convert.index_expression(index, expression, copies);
            -- The call of a function has no parentheses around it.
            IF was <> _snowflake_convert.index_expression(index, expression, names) THEN
                become := '(' || become || ')';
            END IF;
        END IF;
        -- Behind it: collation, operator class with options, order.
        was := was || substring(substr(rest, length(was) + 1)
            FROM '^(?:"(?:[^"]|"")*"|\((?:''(?:[^'']|'''')*''|"(?:[^"]|"")*"|[^''"()])*\)|[^"''(),])*');
        become := become || substr(was, length(pg_get_indexdef(index, place, false)) + 1)
            || CASE place WHEN it.indnatts THEN ')' WHEN it.indnkeyatts THEN ') INCLUDE (' ELSE ', ' END;
        was := was || CASE place WHEN it.indnatts THEN ')' WHEN it.indnkeyatts THEN ') INCLUDE (' ELSE ', ' END;
        IF left(rest, length(was)) <> was THEN
            RAISE EXCEPTION 'could not read the definition of index %', _snowflake.name(index)
                USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = format('At: %s', rest),
                HINT = 'Convert the table at once, by snowflake_convert().';
        END IF;
        definition := definition || become;
        rest := substr(rest, length(was) + 1);
    END LOOP;
    was := substring(rest FROM '^(?: NULLS NOT DISTINCT)?(?: WITH \((?:''(?:[^'']|'''')*''|"(?:[^"]|"")*"|[^''"()])*\))?');
    -- pg_get_indexdef() leaves out the tablespace, which comes before the condition.
    definition := _snowflake_convert.portable(definition || was || coalesce(' TABLESPACE ' || quote_ident(it.spcname), '')
        || coalesce(' WHERE ' || _snowflake_convert.index_expression(index, 0, copies), ''));
END $$;

-- Runs a statement of a plan, as the owner of its table if it can run code of the owner. Who
-- converts the table of another role runs that role's code as that role: see the head of
-- src/sql/convert.rs. Names are qualified in all statements that the plans have. What is not
-- named here runs no code of an owner, or PostgreSQL switches to the owner itself.
CREATE FUNCTION _snowflake_convert.run(statement text) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    name constant text := '((?:"(?:[^"]|"")*"|[^" .]+)\.(?:"(?:[^"]|"")*"|[^" .]+))';
    target constant text := coalesce(
        substring(statement FROM '^ALTER TABLE (?:ONLY )?' || name || ' '),
        substring(statement FROM '^ALTER INDEX ' || name || ' ATTACH PARTITION '),
        substring(statement FROM '^CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^" ]+) ON (?:ONLY )?' || name || ' USING '));
    relation regclass;
BEGIN
    SELECT coalesce(i.indrelid, c.oid)::regclass INTO relation FROM pg_class AS c LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
    WHERE c.oid = to_regclass(target) AND c.relkind IN ('r', 'p', 'v', 'f', 'i', 'I') AND c.relowner <> quote_ident(current_user)::regrole;
    IF FOUND THEN
        PERFORM _snowflake.run_as_owner(relation, statement);
    ELSE
        EXECUTE statement;
    END IF;
END $$;

-- Runs a statement with the settings that its text depends on: snowflake_convert_run() has none.
CREATE FUNCTION _snowflake_convert.run_as_caller(statement text) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET xmloption = content SET bytea_output = hex
    SET quote_all_identifiers = off SET standard_conforming_strings = on AS $$
BEGIN
    EXECUTE statement;
END $$;

-- A statement, or the call that runs it as the owner of a table.
CREATE FUNCTION _snowflake_convert.as_owner(relation regclass, statement text) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN c.relowner = quote_ident(current_user)::regrole THEN statement
        ELSE format('CALL %s.snowflake_convert_run(%L)', _snowflake_convert.schema(),
            format('SELECT _snowflake.run_as_owner(%L, %L)', _snowflake.name(relation), statement)) END
    FROM pg_class AS c WHERE c.oid = relation
$$;

-- Sets lock_timeout to the time that is left. One deadline for all locks: those that are held
-- already make others wait too.
CREATE FUNCTION _snowflake_convert.wait_until(deadline timestamptz) RETURNS void LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE AS $$
    SELECT pg_catalog.set_config('lock_timeout', GREATEST(1, pg_catalog.ceil(EXTRACT(epoch FROM
        deadline OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp())
            OPERATOR(pg_catalog.*) 1000::pg_catalog.numeric))::pg_catalog.text, true)
$$;

-- Who holds locks on the tables that statements name, in transactions from before an instant;
-- null if nobody does. Our own locks have been given back by now. A session that has held one
-- for a short time only is left out, as far as the caller may see that.
CREATE FUNCTION _snowflake_convert.lockers(statements text[], since timestamptz) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on AS $$
    SELECT string_agg(DISTINCT format('%s holds %s on %s',
        CASE WHEN l.pid IS NULL THEN format('prepared transaction %L', x.gid) ELSE format('process %s', l.pid) END, l.mode, n.name), '; ')
    FROM pg_locks AS l
    JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
    JOIN pg_class AS c ON c.oid = l.relation AND c.relkind IN ('r', 'p', 'v', 'm')
    CROSS JOIN _snowflake.name(c.oid) AS n (name)
    CROSS JOIN _snowflake.name(coalesce(pg_partition_root(c.oid), c.oid)) AS r (name)
    LEFT JOIN pg_stat_activity AS a ON a.pid = l.pid
    LEFT JOIN pg_prepared_xacts AS x ON l.virtualtransaction = '-1/' || x.transaction
    WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
      AND (a.xact_start < since) IS NOT FALSE
      AND EXISTS (SELECT FROM unnest(statements) AS s (text) WHERE strpos(s.text, n.name) > 0 OR strpos(s.text, r.name) > 0)
      -- Readers are in nobody's way where triggers and foreign keys are made.
      AND NOT (l.mode IN ('AccessShareLock', 'RowShareLock')
          AND statements[1] ~ '^CREATE OR REPLACE TRIGGER |^LOCK TABLE .* IN SHARE ROW EXCLUSIVE MODE$')
$$;

-- Several tables are locked one by one. Transactions that lock them in another order are
-- found by a lock that we do not get: that table comes first in the next try. So after some
-- tries we lock in the order in which they do, and queue before all of them.
--
-- Each try but the first begins a transaction, so that now() is when the first lock was
-- asked for. snowflake_convert_swap() commits before it calls this.
CREATE PROCEDURE _snowflake_convert.run_with_locks(statement text, locks text[], tries integer, INOUT lockers text) LANGUAGE plpgsql AS $$
DECLARE
    may_fail constant boolean := lockers IS NOT NULL;
    tried integer := 0;
    lock_timeout constant pg_catalog.text := pg_catalog.current_setting('lock_timeout');
    search_path constant pg_catalog.text := pg_catalog.current_setting('search_path');
    place integer;
    began pg_catalog.timestamptz;
    message pg_catalog.text;
    detail pg_catalog.text;
    hint pg_catalog.text;
    context pg_catalog.text;
BEGIN
    IF statement IS NULL OR locks IS NULL OR tries IS NULL THEN
        RAISE EXCEPTION 'an argument of snowflake_convert_run() is null'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Run the statements of snowflake_convert_steps() as they are.';
    END IF;
    locks := _snowflake_convert.check_list(locks, 'locks');
    LOOP
        PERFORM _snowflake_convert.need_read_committed();
        BEGIN
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            began := clock_timestamp();
            place := 0;
            FOR i IN 1 .. cardinality(locks) LOOP
                place := i;
                PERFORM _snowflake_convert.wait_until(began + interval '500 ms');
                PERFORM _snowflake_convert.run_as_caller(locks[i]);
            END LOOP;
            place := 0;
            PERFORM _snowflake_convert.wait_until(began + interval '500 ms');
            PERFORM _snowflake_convert.run_as_caller(statement);
            PERFORM set_config('lock_timeout', lock_timeout, true);
            PERFORM set_config('search_path', search_path, true);
            lockers := NULL;
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            tried := tried + 1;
            -- After 4, 8, 16 .. tries.
            IF tried >= tries OR tried >= 4 AND tried & (tried - 1) = 0 THEN
                lockers := coalesce(_snowflake_convert.lockers(locks || statement, began),
                    'transactions that have ended now held the locks');
            END IF;
            IF tried >= tries AND NOT may_fail THEN
                RAISE EXCEPTION 'could not lock the tables; number of tries: %', tried
                    USING ERRCODE = SQLSTATE, DETAIL = lockers,
                    HINT = 'This transaction has changed nothing. Run the statement again when these transactions have ended.';
            ELSIF tried < tries AND tried >= 4 AND tried & (tried - 1) = 0 THEN
                RAISE NOTICE 'the locks were not to be had in % tries: %', tried, lockers;
            END IF;
            IF place BETWEEN 2 AND cardinality(locks) THEN
                locks := locks[place:place] || locks[:place - 1] || locks[place + 1:];
            END IF;
        WHEN OTHERS OR query_canceled THEN
            -- The context has the whole statement, and that of the swap is as long as its plan.
            PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
            GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, context = PG_EXCEPTION_CONTEXT;
            IF length(context) <= 2000 THEN
                RAISE;
            END IF;
            RAISE EXCEPTION '%', message USING ERRCODE = SQLSTATE, HINT = coalesce(nullif(hint, ''), 'Nothing has been changed.'),
                DETAIL = concat_ws(' ', nullif(detail, ''), format('It was in: %s...', left(context, 2000)));
        END;
        -- Nobody queues behind us while we wait, for longer and longer.
        COMMIT;
        IF tried OPERATOR(pg_catalog.>=) tries THEN
            RETURN;
        END IF;
        PERFORM pg_catalog.pg_sleep(pg_catalog.random() OPERATOR(pg_catalog.*) LEAST(tried, 40)
            OPERATOR(pg_catalog./) 4.0::pg_catalog.float8);
        COMMIT;
    END LOOP;
END $$;

CREATE PROCEDURE _snowflake_convert.snowflake_convert_run(statement text, locks text[], tries integer) LANGUAGE plpgsql AS $$
DECLARE
    lockers pg_catalog.text;
BEGIN
    CALL _snowflake_convert.run_with_locks(statement, locks, tries, lockers);
END $$;

CREATE PROCEDURE snowflake_convert_run(statement text, locks text[] DEFAULT '{}', tries integer DEFAULT 1000)
    LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_internal_held_procedure';
COMMENT ON PROCEDURE snowflake_convert_run(text, text[], integer) IS
    'for snowflake_convert_steps(): runs statements that lock tables, then another one, in one transaction '
    'that waits for locks for half a second at most; tries again until it gets them, or names who holds them';

-- Why tables cannot be converted while they are in use.
CREATE FUNCTION _snowflake_convert.online_obstacles(what _snowflake_convert.request, is_first boolean) RETURNS SETOF text
    LANGUAGE sql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH copies AS MATERIALIZED (
        SELECT * FROM _snowflake_convert.copies(what)),
    tables AS (
        SELECT DISTINCT c.relation AS id, _snowflake.name(c.relation) AS name FROM copies AS c)
    SELECT p.note FROM _snowflake_convert.plan(what, NULL, NULL, true, is_first) AS p
    WHERE p.action = 'obstacle' AND p.note NOT LIKE '% is being converted while it is in use%'
    UNION ALL
    -- Their foreign keys are added again, also if their columns stay.
    SELECT DISTINCT format('must be owner of %s', pg_describe_object('pg_class'::regclass, h.oid, 0)) FROM copies AS c
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = c.relation AND c.number = ANY (k.confkey)
    JOIN pg_class AS h ON h.oid = k.conrelid AND NOT pg_has_role(h.relowner, 'USAGE') WHERE h.oid NOT IN (SELECT t.id FROM tables AS t)
    UNION ALL SELECT format('table %s has child tables, or is one: convert it at once', t.name) FROM tables AS t JOIN pg_class AS c ON c.oid = t.id
    WHERE c.relkind <> 'p' AND NOT c.relispartition AND EXISTS (SELECT FROM pg_inherits AS i WHERE t.id IN (i.inhrelid, i.inhparent))
    UNION ALL SELECT format('table %s is temporary, and in use by nobody else: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id WHERE c.relpersistence = 't'
    UNION ALL SELECT format('partition %s is a foreign table: convert it at once', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id WHERE c.relkind = 'f'
    UNION ALL SELECT format('column %s.%I is NOT NULL, but not in the whole table: convert it at once', t.name, a.attname)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id AND c.root <> c.relation
    JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
    JOIN pg_attribute AS r ON r.attrelid = c.root AND r.attname = c.name WHERE a.attnotnull AND NOT r.attnotnull
    UNION ALL
    -- PostgreSQL adds no such constraint without reading the rows.
    SELECT format('constraint %I of partitioned table %s refers to partitioned table %s: convert them at once',
        k.conname, _snowflake.name(k.conrelid), _snowflake.name(k.confrelid))
    FROM pg_constraint AS k
    JOIN pg_class AS h ON h.oid = k.conrelid AND h.relkind = 'p'
    JOIN pg_class AS f ON f.oid = k.confrelid AND f.relkind = 'p' WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM copies AS c
        WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
    UNION ALL SELECT format('column %s.%I is generated from a column that changes: convert it at once', t.name, a.attname) FROM tables AS t
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attgenerated <> ''
    JOIN pg_attrdef AS e ON e.adrelid = t.id AND e.adnum = a.attnum
    WHERE EXISTS (SELECT FROM pg_depend AS d JOIN copies AS c ON c.relation = t.id AND c.number = d.refobjsubid
        WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.id)
    UNION ALL
    -- Primary keys WITHOUT OVERLAPS are exclusion constraints too.
    SELECT format('constraint %I of table %s is an exclusion constraint: convert it at once', k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id AND k.contype IN ('p', 'u', 'x')
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND i.indisexclusion
    WHERE EXISTS (SELECT FROM copies AS c JOIN pg_depend AS d ON d.refobjsubid = c.number
        WHERE c.relation = t.id AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.id
          AND (d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid OR d.classid = 'pg_constraint'::regclass AND d.objid = k.oid))
    UNION ALL
    -- A unique index that is built CONCURRENTLY refuses duplicates from the beginning.
    SELECT format('constraint %I of table %s is DEFERRABLE, but the index of its copy refuses duplicates immediately until the swap:'
        ' convert the table at once, or make the constraint without DEFERRABLE meanwhile', k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id AND k.contype IN ('p', 'u') AND k.condeferrable
    JOIN pg_index AS i ON i.indexrelid = k.conindid AND NOT i.indisexclusion
    WHERE k.conparentid = 0 AND EXISTS (SELECT FROM copies AS c WHERE c.relation = t.id AND c.number = ANY (i.indkey::smallint[]))
    UNION ALL
    -- The copying updates each row, and PostgreSQL checks the new version. From PostgreSQL 18
    -- on, NOT NULL can be NOT VALID too, and what is NOT ENFORCED is checked never.
    SELECT format('constraint %I of table %s is not valid, and old rows that violate it cannot be copied: validate or drop it',
        k.conname, t.name)
    FROM tables AS t JOIN pg_constraint AS k ON k.conrelid = t.id
    WHERE k.contype IN ('c', 'n') AND NOT k.convalidated AND k.coninhcount = 0 AND pg_get_constraintdef(k.oid) NOT LIKE '% NOT ENFORCED'
      AND NOT EXISTS (SELECT FROM copies AS c WHERE c.relation = t.id AND k.conname IN ('=' || c.copy, '~' || c.copy))
    UNION ALL
    -- PostgreSQL reads the statement of an index that is built CONCURRENTLY as the caller.
    SELECT l FROM _snowflake_convert.literals(ARRAY(
        SELECT ROW (NULL, NULL, NULL, 'index ' || _snowflake.name(i.indexrelid), NULL, NULL,
            ARRAY[pg_get_indexdef(i.indexrelid)])::_snowflake_convert.object
        FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.id WHERE i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)) AS l
    UNION ALL SELECT DISTINCT format('privileges on column %s.%I were granted by role %I, '
        'of which the caller is no member: let its owner grant them instead',
        t.name, c.name, pg_get_userbyid(e.grantor))
    FROM tables AS t JOIN copies AS c ON c.relation = t.id
    JOIN pg_class AS o ON o.oid = t.id
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum = c.number
    CROSS JOIN aclexplode(a.attacl) AS e WHERE e.grantor <> o.relowner
      AND NOT pg_has_role(e.grantor, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
    UNION ALL SELECT format('column %s.%I has an identity, which online conversion keeps for no column: '
        'use set_default => true, or convert it at once', t.name, a.attname)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum = c.number
    WHERE a.attidentity <> '' AND c.relation = c.root AND NOT ((what).set_default AND c.is_key)
    UNION ALL SELECT format('generator %s is at ID %s, which is not above all integers: convert the tables at once',
        _snowflake.name(g.source), g.next_id)
    FROM _snowflake.next_id_range((what).generator, NULL) AS g WHERE (what).set_default AND g.sorted AND g.next_id <= 2147483647
    UNION ALL SELECT format('this server cannot issue IDs of generator %s: %s', _snowflake.name(g.generator), g.problem)
    FROM _snowflake.generators() AS g WHERE (what).set_default AND g.problem IS NOT NULL
      AND g.generator = coalesce((what).generator, _snowflake.default_generator())
    UNION ALL SELECT format('column %s.%I refers to a key that changes, and is of type %s: change it to bigint or numeric first',
        _snowflake.name(k.conrelid), a.attname, format_type(a.atttypid, a.atttypmod))
    FROM copies AS c
    JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = c.relation
    CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
    JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.here
    CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b
    WHERE u.there = c.number AND b.base NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
      AND NOT (b.base = 'numeric'::regtype AND b.modifier = -1)
    UNION ALL
    -- PostgreSQL refuses UPDATE then.
    SELECT format('table %s is published without a replica identity, so its rows cannot be updated: '
        'ALTER TABLE %1$s REPLICA IDENTITY FULL', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id AND c.relkind = 'r' AND c.relpersistence = 'p' WHERE CASE c.relreplident
        WHEN 'f' THEN false
        WHEN 'd' THEN NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)
        ELSE NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisreplident) END
      AND EXISTS (
        SELECT FROM pg_publication AS p
        CROSS JOIN (SELECT c.oid UNION SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) AS a (relid)) AS m (id)
        JOIN pg_class AS n ON n.oid = m.id WHERE p.pubupdate AND (p.puballtables
            OR EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = n.oid)
            OR EXISTS (SELECT FROM pg_publication_namespace AS s WHERE s.pnpubid = p.oid AND s.pnnspid = n.relnamespace)))
    UNION ALL SELECT format('table %s has triggers or rules that fire on UPDATE, and the caller may not set session_replication_role, '
        'which keeps them from the copying', t.name)
    FROM tables AS t WHERE NOT has_parameter_privilege('session_replication_role', 'SET') AND (
        EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = t.id AND NOT g.tgisinternal AND g.tgtype & 16 <> 0
            AND cardinality(g.tgattr::smallint[]) = 0 AND g.tgname <> '~snowflake_convert')
        OR EXISTS (SELECT FROM pg_rewrite AS r WHERE r.ev_class = t.id AND r.ev_type = '2' AND r.ev_enabled <> 'D'))
    -- The copying runs as the owner, and nothing may be left to the end of a transaction then.
    UNION ALL SELECT format('trigger %I of table %s is deferred, and fires on the copying: ALTER TABLE %2$s ENABLE TRIGGER %1$I meanwhile', g.tgname, t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id AND c.relowner <> quote_ident(current_user)::regrole
    JOIN pg_trigger AS g ON g.tgrelid = t.id AND NOT g.tgisinternal AND g.tginitdeferred AND g.tgenabled IN ('A', 'R') AND g.tgtype & 16 <> 0
    UNION ALL SELECT format('table %s has %s columns, with those that were dropped, and PostgreSQL allows no more than 1600: convert it at once', t.name, c.relnatts)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id
    WHERE c.relnatts + (SELECT count(*) FROM copies AS o WHERE o.relation = t.id AND o.copy_number IS NULL) > 1600
    -- PostgreSQL refuses UPDATE then, too.
    UNION ALL SELECT format('publication %I has a condition on column %I of table %s, which is not part of the replica identity: ALTER TABLE %3$s REPLICA IDENTITY FULL',
        p.pubname, a.attname, t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id AND c.relreplident <> 'f'
    JOIN pg_publication_rel AS r ON r.prrelid = t.id AND r.prqual IS NOT NULL JOIN pg_publication AS p ON p.oid = r.prpubid AND p.pubupdate
    JOIN pg_depend AS d ON d.classid = 'pg_publication_rel'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass AND d.refobjid = t.id
    JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum = d.refobjsubid
    WHERE NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = t.id AND a.attnum = ANY (i.indkey::smallint[])
        AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END)
    UNION ALL SELECT format('rule %I of table %s would change the copying: disable it, or do not enable it ALWAYS', r.rulename, t.name)
    FROM tables AS t JOIN pg_rewrite AS r ON r.ev_class = t.id AND r.ev_type = '2' AND r.ev_enabled IN ('A', 'R')
    UNION ALL SELECT format('column %s.%I has the name of the copy that column %I needs: rename it', t.name, a.attname, c.name)
    FROM tables AS t JOIN copies AS c ON c.relation = t.id AND c.copy_number IS NULL
    JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attname = c.copy AND NOT a.attisdropped
    UNION ALL SELECT format('%s has the name of the copy that index %s needs: rename it',
        pg_describe_object('pg_class'::regclass, y.oid, 0), x.relname)
    FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.id
    JOIN pg_class AS x ON x.oid = i.indexrelid
    JOIN pg_class AS y ON y.relnamespace = x.relnamespace AND y.relname = _snowflake_convert.copy_name(x.relname) WHERE EXISTS (SELECT FROM copies AS c
            WHERE c.relation = t.id AND c.number = ANY (_snowflake_convert.index_columns(x.oid)))
      AND NOT EXISTS (SELECT FROM copies AS c
            WHERE c.relation = t.id AND c.copy_number = ANY (_snowflake_convert.index_columns(x.oid)))
      AND NOT EXISTS (SELECT FROM copies AS c JOIN pg_index AS z ON z.indexrelid = y.oid AND z.indrelid = c.relation
            WHERE c.relation = t.id AND c.copy_number = ANY (_snowflake_convert.index_columns(y.oid)))
    UNION ALL SELECT format('constraint %I of table %s has the name of the copy that constraint %I needs: rename it',
        o.conname, _snowflake.name(k.conrelid), k.conname)
    FROM pg_constraint AS k
    JOIN pg_constraint AS o ON o.conrelid = k.conrelid AND o.conname = _snowflake_convert.copy_name(k.conname)
    WHERE k.contype = 'f' AND EXISTS (SELECT FROM copies AS c
            WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
      AND NOT EXISTS (SELECT FROM copies AS c
            WHERE c.relation = o.conrelid AND c.copy_number = ANY (o.conkey)
              OR c.relation = o.confrelid AND c.copy_number = ANY (o.confkey))
    UNION ALL SELECT format('function %s() is there already, and is not of the owner of table %s: drop or rename it', f.name, t.name)
    FROM (SELECT DISTINCT c.root FROM copies AS c) AS r (id) JOIN tables AS t ON t.id = r.id
    CROSS JOIN _snowflake_convert.copy_function(t.id) AS f (name)
    WHERE NOT _snowflake_convert.is_copy_function(to_regprocedure(f.name || '()')::regproc, t.id)
    UNION ALL
    -- It could change the key after the copy has been filled.
    SELECT format('trigger %I of table %s fires after the one that fills the copies: rename it', g.tgname, t.name)
    FROM tables AS t JOIN pg_trigger AS g ON g.tgrelid = t.id
    WHERE NOT g.tgisinternal AND g.tgtype & 3 = 3 AND g.tgtype & 20 <> 0 AND g.tgname > '~snowflake_convert'
    UNION ALL SELECT format('row-level security applies to the caller or to the owner, who would not reach all rows of table %s: '
        'ALTER TABLE %1$s NO FORCE ROW LEVEL SECURITY meanwhile', t.name)
    FROM tables AS t JOIN pg_class AS c ON c.oid = t.id JOIN pg_roles AS o ON o.oid = c.relowner
    -- The copying runs as the owner.
    WHERE row_security_active(t.id) OR c.relrowsecurity AND c.relforcerowsecurity AND NOT (o.rolsuper OR o.rolbypassrls)
$$;

-- An error if tables cannot be converted while they are in use.
CREATE FUNCTION _snowflake_convert.check_obstacles(what _snowflake_convert.request, is_first boolean) RETURNS void
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex AS $$
DECLARE
    obstacle constant text := (SELECT o FROM _snowflake_convert.online_obstacles(what, is_first) AS o LIMIT 1);
BEGIN
    IF obstacle IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert keys: %', obstacle
            USING ERRCODE = CASE WHEN obstacle LIKE 'must be owner of %' THEN 'insufficient_privilege'
                ELSE 'object_not_in_prerequisite_state' END,
            HINT = 'snowflake_convert_plan(online => true) lists all obstacles.';
    END IF;
    PERFORM _snowflake_convert.tell('the steps have no obstacle');
END $$;

-- The steps of tables that have no obstacle.
CREATE FUNCTION _snowflake_convert.steps(what _snowflake_convert.request, schemas regnamespace[], OUT step bigint, OUT statement text)
    RETURNS SETOF record LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex AS $$
DECLARE
    arguments text := concat_ws(', ', CASE WHEN what.are_named THEN 'relations => ' || quote_literal(what.relations::text) END,
        'schemas => ' || quote_literal(schemas::text), 'generator => ' || quote_literal(_snowflake.name(what.generator)),
        CASE WHEN NOT what.set_default THEN 'set_default => false' END,
        (SELECT 'also => ' || quote_literal(array_agg(a.given)::text) FROM unnest(what.also) AS a HAVING count(*) > 0));
    home constant regnamespace := _snowflake_convert.schema();
BEGIN
    step := 0;
    FOR statement IN
        WITH columns AS MATERIALIZED (
            SELECT c.*, _snowflake.name(c.relation) AS table_name, a.attnotnull,
                e.oid IS NOT NULL AS has_check, coalesce(e.convalidated, false) AS is_equal,
                n.oid IS NOT NULL OR NOT a.attnotnull AS has_not_null, coalesce(n.convalidated, NOT a.attnotnull) AS is_not_null
            FROM _snowflake_convert.copies(what) AS c
            JOIN pg_attribute AS a ON a.attrelid = c.relation AND a.attnum = c.number
            LEFT JOIN pg_constraint AS e ON e.conrelid = c.relation AND e.conname = '=' || c.copy
            LEFT JOIN pg_constraint AS n ON n.conrelid = c.relation AND n.conname = '~' || c.copy),
        sources AS (
            SELECT c.relation, c.root, c.kind, c.table_name, array_agg(c.name ORDER BY c.number) AS names,
                _snowflake_convert.copy_function(c.relation) AS function,
                format(E'BEGIN\n    %s\n    RETURN NEW;\nEND',
                    string_agg(format('NEW.%I := NEW.%I;', c.copy, c.name), E'\n    ' ORDER BY c.number)) AS body
            FROM columns AS c GROUP BY c.relation, c.root, c.kind, c.table_name),
        constraints AS (
            SELECT k.*, _snowflake.name(k.conrelid) AS table_name,
                _snowflake.name(k.confrelid) AS referred,
                _snowflake_convert.copy_name(k.conname) AS copy
            FROM pg_constraint AS k
            JOIN pg_class AS h ON h.oid = k.conrelid AND h.relkind = 'r'
            -- The swap adds foreign keys that refer to partitioned tables: only there is
            -- there a primary key to refer to.
            JOIN pg_class AS f ON f.oid = k.confrelid AND f.relkind = 'r'
            LEFT JOIN pg_constraint AS p ON p.oid = k.conparentid WHERE k.contype = 'f' AND p.conrelid IS DISTINCT FROM k.conrelid
              AND EXISTS (SELECT FROM columns AS c
                  WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey)
                     OR c.relation = k.confrelid AND c.number = ANY (k.confkey))),
        -- The tables that are converted, and others whose foreign keys the swap adds again.
        members AS MATERIALIZED (
            SELECT f.member::oid AS relation, f.number, f.member = c.relation AS is_root FROM _snowflake_convert.columns(what) AS c
            CROSS JOIN _snowflake.inheritance(c.relation, c.name) AS f),
        ended AS MATERIALIZED (
            SELECT t.relation, t.is_root, _snowflake.name(t.relation) AS name FROM (
                SELECT DISTINCT m.relation, m.is_root FROM members AS m
                UNION ALL SELECT DISTINCT k.conrelid, true FROM members AS m
                JOIN pg_class AS f ON f.oid = m.relation AND f.relkind = 'p'
                JOIN pg_constraint AS k ON k.contype = 'f' AND k.confrelid = m.relation AND m.number = ANY (k.confkey)
                WHERE k.conrelid NOT IN (SELECT o.relation FROM members AS o)) AS t),
        -- Constraints that the swap adds without reading rows: those of columns, and foreign
        -- keys that refer to partitioned tables.
        unvalidated AS (
            SELECT t.relation, t.name, k.conname FROM ended AS t JOIN pg_constraint AS k ON k.conrelid = t.relation
            WHERE (k.contype = 'c' AND k.coninhcount = 0 OR k.contype = 'f' AND k.conparentid = 0)
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = t.relation AND c.copy_number = ANY (k.conkey))
              AND CASE WHEN k.convalidated THEN EXISTS (
                    SELECT FROM columns AS c
                    WHERE c.relation = k.conrelid AND c.number = ANY (k.conkey) OR c.relation = k.confrelid AND c.number = ANY (k.confkey))
                  AND (k.contype = 'c' OR (SELECT f.relkind FROM pg_class AS f WHERE f.oid = k.confrelid) = 'p')
                ELSE EXISTS (SELECT FROM _snowflake_convert.conversions AS p
                    WHERE p.relation = t.relation AND k.conname = ANY (p.to_validate)) END),
        steps (phase, place, text) AS (
            SELECT 1, c.table_name, format('ALTER TABLE %s %s; %s', c.table_name,
                string_agg(format('ADD COLUMN %I bigint', c.copy), ', ' ORDER BY c.number),
                string_agg(concat_ws('; ',
                    format('COMMENT ON COLUMN %s.%I IS %L', c.table_name, c.copy, 'filled by snowflake_convert_steps()'),
                    g.statements), '; ' ORDER BY c.number))
            FROM columns AS c
            -- Roles that may read the column may read the copy, so that SELECT * still works.
            CROSS JOIN LATERAL (
                SELECT string_agg(DISTINCT format('GRANT SELECT (%I) ON TABLE %s TO %s', c.copy, m.table_name,
                    CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END), '; ')
                FROM columns AS m
                JOIN pg_attribute AS a ON a.attrelid = m.relation AND a.attnum = m.number
                CROSS JOIN aclexplode(a.attacl) AS e WHERE m.root = c.root AND m.name = c.name AND e.privilege_type = 'SELECT') AS g (statements)
            WHERE c.copy_number IS NULL AND c.relation = c.root GROUP BY c.table_name
            UNION ALL SELECT 2, s.table_name, format('CREATE %sFUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS %L',
                CASE WHEN to_regprocedure(s.function || '()') IS NULL THEN '' ELSE 'OR REPLACE ' END, s.function, s.body)
            FROM sources AS s WHERE s.relation = s.root
              AND s.body IS DISTINCT FROM (SELECT p.prosrc FROM pg_proc AS p WHERE p.oid = to_regprocedure(s.function || '()'))
            UNION ALL SELECT 3, s.table_name, format(
                'CREATE OR REPLACE TRIGGER %1$I BEFORE INSERT OR UPDATE ON %2$s FOR EACH ROW EXECUTE FUNCTION %3$s();'
                ' ALTER TABLE %2$s ENABLE ALWAYS TRIGGER %1$I; SELECT _snowflake_convert.check_copying(%2$L)',
                '~snowflake_convert', s.table_name, s.function)
            FROM sources AS s WHERE s.relation = s.root AND NOT _snowflake_convert.is_copying(s.relation)
            UNION ALL SELECT 4, c.table_name, format('ALTER TABLE %s %s', c.table_name, string_agg(concat_ws(', ',
                CASE WHEN NOT c.has_check THEN format('ADD CONSTRAINT %I CHECK (%I IS NOT DISTINCT FROM %I) NOT VALID',
                    '=' || c.copy, c.copy, c.name) END,
                CASE WHEN NOT c.has_not_null THEN format('ADD CONSTRAINT %I CHECK (%I IS NOT NULL) NOT VALID',
                    '~' || c.copy, c.copy) END), ', ' ORDER BY c.number))
            FROM columns AS c WHERE c.relation = c.root AND NOT (c.has_check AND c.has_not_null) GROUP BY c.table_name
            UNION ALL SELECT 5, c.table_name, format('CALL %s.snowflake_convert_backfill(%L)', home, c.table_name)
            FROM columns AS c LEFT JOIN _snowflake_convert.conversions AS p ON p.relation = c.relation
            WHERE c.kind = 'r' AND NOT (c.is_equal AND c.is_not_null) AND (c.copy_number = ANY (p.filled)) IS NOT TRUE
            GROUP BY c.table_name
            UNION ALL
            -- A partition at a time; then the whole table, which reads nothing again.
            SELECT 6, CASE c.kind WHEN 'r' THEN '' ELSE c.root::text END || ' ' || c.table_name,
                _snowflake_convert.as_owner(c.relation, format('ALTER TABLE %s %s', c.table_name, string_agg(concat_ws(', ',
                    CASE WHEN NOT c.is_equal THEN format('VALIDATE CONSTRAINT %I', '=' || c.copy) END,
                    CASE WHEN NOT c.is_not_null THEN format('VALIDATE CONSTRAINT %I', '~' || c.copy) END), ', ' ORDER BY c.number)))
            FROM columns AS c WHERE (c.kind = 'r' OR c.relation = c.root) AND NOT (c.is_equal AND c.is_not_null)
            GROUP BY c.kind, c.root, c.relation, c.table_name
            UNION ALL
            -- An upsert can fail on a unique index that it does not name. So those that no
            -- foreign key needs are built last.
            SELECT CASE WHEN NOT i.indisunique THEN 7
                WHEN EXISTS (SELECT FROM pg_constraint AS k WHERE k.contype = 'f' AND k.conindid = i.indexrelid)
                THEN 8 ELSE 11 END, s.table_name || x.relname, v.text
            FROM sources AS s
            JOIN pg_index AS i ON i.indrelid = s.relation
            JOIN pg_class AS x ON x.oid = i.indexrelid
            CROSS JOIN _snowflake_convert.index_columns(x.oid) AS u (numbers)
            CROSS JOIN _snowflake_convert.copy_index(i.indexrelid, s.names) AS d
            LEFT JOIN pg_class AS y ON y.relnamespace = x.relnamespace AND y.relname = d.copy
            LEFT JOIN pg_index AS z ON z.indexrelid = y.oid
            CROSS JOIN LATERAL (VALUES
                -- What an interrupted build leaves behind.
                (1, CASE WHEN NOT z.indisvalid THEN format('DROP INDEX CONCURRENTLY %s', _snowflake.name(y.oid)) END),
                (2, CASE WHEN z.indisvalid IS NOT TRUE THEN d.definition END)) AS v (place, text)
            WHERE s.kind = 'r' AND EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.number = ANY (u.numbers))
              AND NOT EXISTS (SELECT FROM columns AS c WHERE c.relation = i.indrelid AND c.copy_number = ANY (u.numbers))
              AND v.text IS NOT NULL
            UNION ALL SELECT 9, k.table_name || k.conname, format('CALL %s.snowflake_convert_run(%L, ARRAY[%L, %L])', home, format(
                'ALTER TABLE %s ADD CONSTRAINT %I FOREIGN KEY (%s) REFERENCES %s (%s)%s%s%s %s',
                k.table_name, k.copy, m.here, k.referred, m.there,
                CASE k.confmatchtype WHEN 'f' THEN ' MATCH FULL' ELSE '' END,
                format(' ON UPDATE %s ON DELETE %s%s', u.text, d.text,
                    (SELECT format(' (%s)', string_agg(quote_ident(coalesce(c.copy, a.attname)), ', '))
                     FROM unnest(k.confdelsetcols) AS l (number)
                     JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = l.number
                     LEFT JOIN columns AS c ON c.relation = k.conrelid AND c.number = l.number HAVING count(*) > 0)),
                CASE WHEN k.condeferred THEN ' DEFERRABLE INITIALLY DEFERRED' WHEN k.condeferrable THEN ' DEFERRABLE' ELSE '' END,
                -- From PostgreSQL 18 on, one may be there that nothing checks.
                CASE WHEN pg_get_constraintdef(k.oid) LIKE '% NOT ENFORCED' THEN 'NOT ENFORCED' ELSE 'NOT VALID' END),
                format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', k.referred),
                format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', k.table_name))
            FROM constraints AS k
            CROSS JOIN LATERAL (
                SELECT string_agg(quote_ident(coalesce(c.copy, a.attname)), ', ' ORDER BY l.place),
                    string_agg(quote_ident(coalesce(f.copy, b.attname)), ', ' ORDER BY l.place)
                FROM unnest(k.conkey, k.confkey) WITH ORDINALITY AS l (here, there, place)
                JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = l.here
                JOIN pg_attribute AS b ON b.attrelid = k.confrelid AND b.attnum = l.there
                LEFT JOIN columns AS c ON c.relation = k.conrelid AND c.number = l.here
                LEFT JOIN columns AS f ON f.relation = k.confrelid AND f.number = l.there) AS m (here, there)
            JOIN (VALUES ('a', 'NO ACTION'), ('r', 'RESTRICT'), ('c', 'CASCADE'), ('n', 'SET NULL'), ('d', 'SET DEFAULT')) AS u (code, text)
                ON u.code = k.confupdtype
            JOIN (VALUES ('a', 'NO ACTION'), ('r', 'RESTRICT'), ('c', 'CASCADE'), ('n', 'SET NULL'), ('d', 'SET DEFAULT')) AS d (code, text)
                ON d.code = k.confdeltype
            WHERE NOT EXISTS (SELECT FROM pg_constraint AS o WHERE o.conrelid = k.conrelid AND o.conname = k.copy)
            UNION ALL SELECT 10, k.table_name || k.conname,
                _snowflake_convert.as_owner(k.conrelid, format('ALTER TABLE %s VALIDATE CONSTRAINT %I', k.table_name, k.copy))
            FROM constraints AS k WHERE k.convalidated AND NOT EXISTS (
                SELECT FROM pg_constraint AS o WHERE o.conrelid = k.conrelid AND o.conname = k.copy AND o.convalidated)
            UNION ALL SELECT 12, '', format('CALL %s.snowflake_convert_swap(%s)', home, arguments) WHERE EXISTS (SELECT FROM columns)
            UNION ALL
            -- Keys that are bigint already.
            SELECT 13, t.name, format('CALL %s.snowflake_convert_run(%L)', home,
                format('SELECT %s.snowflake_set_default(%s)', home,
                    concat_ws(', ', quote_literal(t.name), quote_literal(c.name), quote_literal(_snowflake.name(what.generator)))))
            FROM _snowflake_convert.columns(what) AS c
            CROSS JOIN _snowflake.name(c.relation) AS t (name) WHERE what.set_default AND c.is_key AND c.base = 'bigint'::regtype AND EXISTS (
                SELECT FROM _snowflake.inheritance(c.relation, c.name) AS f
                WHERE f.expression IS DISTINCT FROM _snowflake_convert.wanted_default(what.generator))
            UNION ALL
            -- After the swap, or for a list that is made before it.
            SELECT 14, u.name, _snowflake_convert.as_owner(u.relation, format('ALTER TABLE %s VALIDATE CONSTRAINT %I', u.name, u.conname))
            FROM unvalidated AS u
            UNION ALL SELECT 15, t.name, format('CALL %s.snowflake_convert_run(%L)', home, format(
                'ANALYZE %1$s; SELECT _snowflake_convert.end_conversion(%1$L)', t.name))
            FROM ended AS t
            WHERE t.is_root AND (EXISTS (SELECT FROM _snowflake_convert.conversions AS p WHERE p.relation = t.relation AND p.ended IS NULL)
                OR EXISTS (SELECT FROM columns AS c WHERE c.relation = t.relation)
                OR EXISTS (SELECT FROM unvalidated AS u WHERE u.relation = t.relation)))
        SELECT CASE WHEN s.phase IN (1, 3, 4) THEN format('CALL %s.snowflake_convert_run(%L)', home, s.text) ELSE s.text END
        FROM steps AS s ORDER BY s.phase, s.place, CASE WHEN s.text LIKE 'DROP %' THEN 0 WHEN s.text LIKE 'CALL %' THEN 2 ELSE 1 END, s.text
    LOOP
        step := step + 1;
        RETURN NEXT;
    END LOOP;
END $$;

CREATE FUNCTION _snowflake_convert.snowflake_convert_steps(relations regclass[], schemas regnamespace[], generator regclass, set_default boolean, also text[],
    OUT step bigint, OUT statement text) RETURNS SETOF record LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on AS $$
DECLARE
    what constant _snowflake_convert.request := _snowflake_convert.request(relations, schemas, also, generator, set_default);
BEGIN
    PERFORM _snowflake_convert.check_obstacles(what, true);
    RETURN QUERY SELECT s.step, s.statement FROM _snowflake_convert.steps(what, schemas) AS s;
END $$;

CREATE FUNCTION snowflake_convert_steps(relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true, also text[] DEFAULT NULL,
    OUT step bigint, OUT statement text) RETURNS SETOF record LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake_convert.hold();
    SELECT s.* FROM _snowflake_convert.snowflake_convert_steps(
        relations, schemas, generator, set_default, also) AS s;
END;
COMMENT ON FUNCTION snowflake_convert_steps(regclass[], regnamespace[], regclass, boolean, text[]) IS
    'the statements that convert the keys of tables which stay in use, without those that have been carried out; '
    'a client runs each in a transaction of its own, as with "gexec" in psql';

CREATE FUNCTION _snowflake_convert.snowflake_convert_undo(relations regclass[], schemas regnamespace[],
    OUT step bigint, OUT statement text) RETURNS SETOF record LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on AS $$
DECLARE
    what constant _snowflake_convert.request := _snowflake_convert.request(relations, schemas, '{}', NULL, true);
    left_over regclass;
    home constant regnamespace := _snowflake_convert.schema();
BEGIN
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT c.relation, c.relation = c.root AS is_root, c.copy, c.copy_number FROM _snowflake_convert.copies(what) AS c WHERE c.copy_number IS NOT NULL
        UNION
        -- A table that a foreign key does not reach any more has to be named.
        SELECT f.member, f.member = t.id, n.copy, f.number FROM unnest(what.relations) AS t (id)
        JOIN pg_attribute AS a ON a.attrelid = t.id AND a.attnum > 0 AND NOT a.attisdropped
        CROSS JOIN _snowflake_convert.copy_name(a.attname) AS n (copy)
        CROSS JOIN _snowflake.inheritance(t.id, n.copy) AS f WHERE _snowflake_convert.copy_number(t.id, a.attname, t.id) IS NOT NULL
        UNION
        -- A detached partition keeps the constraint, and has no trigger.
        SELECT k.conrelid, true, c.attname, c.attnum FROM pg_constraint AS k
        JOIN pg_class AS t ON t.oid = k.conrelid AND NOT t.relispartition AND pg_has_role(t.relowner, 'USAGE')
        JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey) AND NOT a.attisdropped
        JOIN pg_attribute AS c ON c.attrelid = k.conrelid AND c.attnum = ANY (k.conkey) AND NOT c.attisdropped
            AND c.attname = _snowflake_convert.copy_name(a.attname)
        WHERE k.contype = 'c' AND k.conname = '=' || c.attname AND cardinality(k.conkey) = 2
          AND NOT EXISTS (SELECT FROM pg_trigger AS g WHERE g.tgrelid = k.conrelid AND g.tgname = '~snowflake_convert')),
    columns AS (
        SELECT f.*, _snowflake.name(f.relation) AS table_name FROM found AS f),
    steps (phase, place, text) AS (
        SELECT 1, n.name || k.conname, format('CALL %s.snowflake_convert_run(%L, ARRAY[%L, %L])', home,
            format('ALTER TABLE %s DROP CONSTRAINT %I', n.name, k.conname),
            format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', f.name), format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', n.name))
        FROM pg_constraint AS k
        CROSS JOIN _snowflake.name(k.conrelid) AS n (name)
        CROSS JOIN _snowflake.name(k.confrelid) AS f (name) WHERE k.contype = 'f' AND k.conparentid = 0 AND EXISTS (SELECT FROM columns AS c
            WHERE c.relation = k.conrelid AND c.copy_number = ANY (k.conkey)
              OR c.relation = k.confrelid AND c.copy_number = ANY (k.confkey))
        UNION ALL
        -- In one transaction: without the trigger, the constraint would refuse rows.
        SELECT 2, c.table_name, format('CALL %s.snowflake_convert_run(%L)', home,
            format('ALTER TABLE %1$s %2$s; DROP TRIGGER IF EXISTS %3$I ON %1$s;%4$s'
                ' SELECT _snowflake_convert.end_conversion(%1$L)',
                c.table_name, string_agg(format('DROP COLUMN %I', c.copy), ', ' ORDER BY c.copy_number), '~snowflake_convert',
                -- A function of the same name that is not ours stays.
                (SELECT format(' DROP FUNCTION %s();', f.name) FROM _snowflake_convert.copy_function(c.relation) AS f (name)
                 WHERE _snowflake_convert.is_copy_function(to_regprocedure(f.name || '()')::regproc, c.relation))))
        FROM columns AS c WHERE c.is_root GROUP BY c.relation, c.table_name)
    SELECT row_number() OVER (ORDER BY s.phase, s.place), s.text FROM steps AS s ORDER BY s.phase, s.place;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is nothing to undo' USING ERRCODE = 'object_not_in_prerequisite_state',
            DETAIL = 'No table has a copy of a column. After snowflake_convert_swap(), the conversion cannot be undone.',
            HINT = 'Name the tables that snowflake_convert_steps() was called with.';
    END IF;
    FOR left_over IN
        SELECT DISTINCT g.tgrelid FROM pg_trigger AS g
        WHERE g.tgname = '~snowflake_convert' AND g.tgparentid = 0
          AND g.tgrelid NOT IN (
              SELECT c.relation FROM _snowflake_convert.copies(what) AS c UNION ALL SELECT unnest(what.relations))
    LOOP
        RAISE NOTICE 'table % has copies too, and no foreign key reaches it from here: '
            'name it, if it belongs to this conversion', _snowflake.name(left_over);
    END LOOP;
END $$;

CREATE FUNCTION snowflake_convert_undo(relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    OUT step bigint, OUT statement text) RETURNS SETOF record LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake_convert.hold();
    SELECT u.* FROM _snowflake_convert.snowflake_convert_undo(relations, schemas) AS u;
END;
COMMENT ON FUNCTION snowflake_convert_undo(regclass[], regnamespace[]) IS
    'the statements that remove what snowflake_convert_steps() has added, until the swap; '
    'a client runs each in a transaction of its own, as with "gexec" in psql';

CREATE PROCEDURE _snowflake_convert.snowflake_convert_backfill(relation regclass, batch interval) LANGUAGE plpgsql AS $$
DECLARE
    it pg_catalog.record;
    name pg_catalog.text;
    page bigint;
    pages bigint;
    width bigint;
    updated_rows bigint;
    done bigint := 0;
    done_before bigint := 0;
    wait pg_catalog.float8 := 0.1;     -- seconds until the next pass
    rate pg_catalog.float8;
    began pg_catalog.timestamptz;
    told pg_catalog.timestamptz;
    pass_began pg_catalog.timestamptz;
    took pg_catalog.float8;
    is_left boolean;
    older pg_catalog.text[];
    processes pg_catalog.text;
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'relation must not be null'
            USING ERRCODE = 'null_value_not_allowed', HINT = 'Run the statements of snowflake_convert_steps() as they are.';
    END IF;
    PERFORM _snowflake.fix_settings();
    name := _snowflake.name(relation);
    SELECT string_agg(format('%I = %I', c.attname, a.attname), ', ') AS assignments,
        string_agg(format('%I IS DISTINCT FROM %I', c.attname, a.attname), ' OR ') AS condition,
        array_agg(c.attnum) AS copies, array_agg(a.attnum) AS numbers INTO it
    FROM pg_attribute AS a
    JOIN pg_attribute AS c ON c.attrelid = a.attrelid
        AND c.attnum = _snowflake_convert.copy_number(coalesce(pg_partition_root(relation), relation), a.attname, relation)
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped;
    IF it.assignments IS NULL THEN
        RAISE EXCEPTION 'table % has no copies of columns to fill', name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'snowflake_convert_steps() has the statements that add them.';
    END IF;
    INSERT INTO _snowflake_convert.conversions AS p (relation, pages_done, pages, rows_done, started, updated)
        VALUES (relation, 0, 0, 0, clock_timestamp(), clock_timestamp()) ON CONFLICT ON CONSTRAINT conversions_pkey
        -- After a whole pass, another one is wanted.
        DO UPDATE SET pages_done = CASE WHEN p.filled IS NULL THEN p.pages_done ELSE 0 END, filled = NULL, to_validate = NULL,
            rows_done = CASE WHEN p.ended IS NULL THEN p.rows_done ELSE 0 END,
            started = CASE WHEN p.ended IS NULL THEN p.started ELSE excluded.started END, ended = NULL;
    SELECT p.pages_done INTO page FROM _snowflake_convert.conversions AS p WHERE p.relation = snowflake_convert_backfill.relation;
    width := 16;
    told := clock_timestamp();
    LOOP
        pages := pg_relation_size(relation) / current_setting('block_size')::bigint;
        pass_began := clock_timestamp();
        WHILE page < pages LOOP
            -- Triggers of users do not see the copying; that of the copies fires always.
            PERFORM _snowflake_convert.need_read_committed();
            IF has_parameter_privilege('session_replication_role', 'SET') THEN
                PERFORM set_config('session_replication_role', 'replica', true);
            END IF;
            began := clock_timestamp();
            -- Rows that are locked are left for the next pass, or for the trigger: a session that
            -- never waits for a row while it holds others is part of no deadlock.
            BEGIN
                updated_rows := _snowflake.run_as_owner(relation, format('WITH found AS (
                        SELECT ctid FROM ONLY %1$s WHERE ctid >= %2$L::tid AND ctid < %3$L::tid AND (%4$s) FOR NO KEY UPDATE SKIP LOCKED)
                    UPDATE ONLY %1$s AS t SET %5$s FROM found
                    WHERE t.ctid = found.ctid AND t.ctid >= %2$L::tid AND t.ctid < %3$L::tid',
                    relation, format('(%s,0)', page), format('(%s,0)', least(page + width, 4294967295)), it.condition, it.assignments));
            EXCEPTION WHEN serialization_failure THEN
                -- A row was just moved to another partition. The trigger fills it there.
                updated_rows := NULL;
            END;
            IF updated_rows IS NULL THEN
                COMMIT;
                PERFORM _snowflake.fix_settings();
                CONTINUE;
            END IF;
            page := page + width;
            done := done + updated_rows;
            took := greatest(extract(epoch FROM clock_timestamp() - began), 0.001);
            rate := done / greatest(extract(epoch FROM clock_timestamp() - pass_began), 0.001);
            UPDATE _snowflake_convert.conversions AS p
                SET pages_done = least(page, size.pages), pages = size.pages, rows_done = p.rows_done + updated_rows,
                    rows_per_second = rate, updated = clock_timestamp()
                FROM (SELECT pages) AS size (pages) WHERE p.relation = snowflake_convert_backfill.relation;
            -- As many pages as take the time of a batch, give or take.
            width := greatest(1, least(width * 2, (width * extract(epoch FROM batch) / took)::bigint, 65536));
            IF clock_timestamp() > told + interval '10 seconds' THEN
                told := clock_timestamp();
                RAISE NOTICE '%: page % of %, % rows per second, about % left', name, least(page, pages), pages, round(rate::numeric),
                    make_interval(secs => round(extract(epoch FROM told - pass_began) * (pages - page) / greatest(page, 1)));
            END IF;
            COMMIT;
            -- Before the next operator: until then, the path is the caller's.
            PERFORM _snowflake.fix_settings();
        END LOOP;
        is_left := _snowflake.read_as_owner(relation,
            format('SELECT EXISTS (SELECT FROM ONLY %s WHERE %s)', relation, it.condition))::boolean;
        EXIT WHEN NOT is_left;
        -- The whole table is read again, so others get time to give the rows back.
        wait := CASE WHEN done > done_before THEN 0.1 ELSE least(wait * 2, 60) END;
        IF wait >= 1 THEN
            RAISE NOTICE '%: some rows are locked by other transactions; trying again in % s', name, round(wait::numeric);
        END IF;
        done_before := done;
        page := 0;
        UPDATE _snowflake_convert.conversions AS p SET pages_done = 0 WHERE p.relation = snowflake_convert_backfill.relation;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(wait);
        PERFORM _snowflake.fix_settings();
    END LOOP;
    -- A snapshot from before has the rows without copies, and would find null keys after the
    -- swap. So we wait for such snapshots, as a concurrent build of an index does; but not
    -- every table gets one. Autovacuum, which has no user, reads no keys.
    older := ARRAY(SELECT l.virtualtransaction FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
        JOIN pg_database AS d ON d.oid = a.datid AND d.datname = current_database()
        WHERE l.locktype = 'virtualxid' AND l.granted AND l.mode = 'ExclusiveLock'
          AND a.usesysid IS NOT NULL AND l.pid <> pg_backend_pid());
    wait := 0.01;
    LOOP
        SELECT string_agg(DISTINCT l.pid::text, ', ') INTO processes
        FROM pg_locks AS l WHERE l.locktype = 'virtualxid' AND l.granted AND l.virtualtransaction = ANY (older);
        EXIT WHEN processes IS NULL;
        wait := least(wait * 2, 10);
        IF wait >= 1 THEN
            RAISE NOTICE '%: waiting for transactions that could see the table as it was before: processes %', name, processes;
        END IF;
        COMMIT;
        PERFORM pg_catalog.pg_sleep(wait);
        PERFORM _snowflake.fix_settings();
    END LOOP;
    UPDATE _snowflake_convert.conversions AS p SET filled = it.copies, updated = clock_timestamp()
        WHERE p.relation = snowflake_convert_backfill.relation;
END $$;

CREATE PROCEDURE snowflake_convert_backfill(relation regclass, batch interval DEFAULT '200 ms')
    LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_internal_held_procedure';
COMMENT ON PROCEDURE snowflake_convert_backfill(regclass, interval) IS
    'for snowflake_convert_steps(): fills the copies of columns in the rows of a table, '
    'in transactions of about the given length; continues where it was interrupted';
