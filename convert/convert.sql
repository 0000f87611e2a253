-- snowflake_convert_plan() shows the plans that plan.sql and online.sql
-- make. snowflake_convert() runs the first: at once, in the caller's transaction, all or
-- nothing. snowflake_set_defaults() sets the defaults of all tables of
-- a schema.
--
-- The plan is made twice: before the lock, for its obstacles and for the statement that
-- takes the lock, and under the lock. If they differ, nothing is changed.

-- Refuses arguments about old rows that do not belong together.
CREATE FUNCTION _snowflake_convert.check_backfill(backfill boolean, backfill_by name[], worker_id bigint, set_default boolean) RETURNS void
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM _snowflake_convert.check_list(backfill_by, 'backfill_by');
    IF NOT backfill AND (backfill_by IS NOT NULL OR worker_id IS NOT NULL) THEN
        RAISE EXCEPTION 'backfill_by and worker_id are for backfill => true' USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Leave them out, or give backfill => true too.';
    ELSIF backfill AND worker_id IS NULL THEN
        RAISE EXCEPTION 'worker_id must be given for old rows' USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'With the worker ID of a server, an old row could get an ID that the server has issued.',
            HINT = 'Give one that no server has, has had or can lease.';
    ELSIF backfill AND NOT set_default THEN
        RAISE EXCEPTION 'old rows cannot be given IDs while the default stays' USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'New rows would sort before them.', HINT = 'Leave out set_default => false.';
    END IF;
END $$;

CREATE FUNCTION _snowflake_convert.snowflake_convert_plan(relations regclass[], schemas regnamespace[], generator regclass, set_default boolean, online boolean,
    backfill boolean, backfill_by name[], worker_id bigint, also text[],
    OUT step bigint, OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex AS $$
DECLARE
    what constant _snowflake_convert.request := _snowflake_convert.request(relations, schemas, also, generator, set_default);
    work _snowflake_convert.work;
BEGIN
    PERFORM _snowflake_convert.check_backfill(backfill, backfill_by, worker_id, set_default);
    IF online AND backfill THEN
        action := 'obstacle';
        note := 'old rows can be given IDs of their time at once only, and not while the tables are in use';
        RETURN NEXT;
        RETURN;
    END IF;
    IF NOT online THEN
        RETURN QUERY
            SELECT CASE WHEN p.statement IS NOT NULL THEN count(p.statement) OVER (ORDER BY p.ordinality) END,
                p.action, p.statement, p.locks, p.rewrites, p.note
            FROM _snowflake_convert.plan(what, backfill_by, worker_id, false, true) WITH ORDINALITY AS p
            ORDER BY p.ordinality;
        RETURN;
    END IF;
    RETURN QUERY
        SELECT NULL::bigint, 'obstacle', NULL::text, NULL::text, NULL::bigint, o.note FROM _snowflake_convert.online_obstacles(what, true) AS o (note);
    IF NOT FOUND THEN
        PERFORM _snowflake_convert.tell('the plan has no obstacle');
        FOR step, statement IN
            SELECT s.step, s.statement FROM _snowflake_convert.steps(what, schemas) AS s ORDER BY s.step
        LOOP
            action := 'step';
            locks := CASE
                WHEN statement LIKE 'CALL %.snowflake\_convert\_backfill(%' THEN 'ROW EXCLUSIVE'
                WHEN statement LIKE 'CALL %TRIGGER "~snowflake\_convert"%' OR statement LIKE 'CALL %FOREIGN KEY%' THEN 'SHARE ROW EXCLUSIVE'
                WHEN statement LIKE 'CALL %(''ANALYZE %' THEN 'SHARE UPDATE EXCLUSIVE'
                WHEN statement LIKE 'CALL %SELECT \_snowflake.run\_as\_owner(%' THEN 'SHARE UPDATE EXCLUSIVE'
                WHEN statement LIKE 'CALL %' THEN 'ACCESS EXCLUSIVE'
                WHEN statement ~ '^(CREATE UNIQUE|CREATE INDEX|DROP INDEX|ALTER TABLE)' THEN 'SHARE UPDATE EXCLUSIVE' END;
            RETURN NEXT;
            IF statement LIKE 'CALL %.snowflake\_convert\_swap(%' THEN
                -- What this call does, in one transaction.
                action := 'swap';
                step := NULL;
                PERFORM _snowflake_convert.tell('the plan knows the steps');
                FOR statement IN
                    SELECT s FROM _snowflake_convert.swap_plan(what) AS s
                LOOP
                    rewrites := CASE WHEN statement LIKE 'REFRESH MATERIALIZED VIEW %' THEN
                        pg_total_relation_size(substr(statement, length('REFRESH MATERIALIZED VIEW ') + 1)::regclass) END;
                    note := CASE WHEN rewrites IS NOT NULL THEN 'the tables are locked while this runs: '
                        'drop the view before, if it takes too long, and make it again after' END;
                    RETURN NEXT;
                END LOOP;
                rewrites := NULL;
                note := NULL;
            END IF;
        END LOOP;
    END IF;
    work := _snowflake_convert.work_of(what, NULL, NULL, true);
    RETURN QUERY
        SELECT NULL::bigint, 'note', NULL::text, NULL::text, NULL::bigint, n FROM _snowflake_convert.notes_of_plan(work, what) AS n;
    -- What the copies are to those who use the tables meanwhile.
    RETURN QUERY
        WITH changed AS (
            SELECT DISTINCT c.relation AS id, _snowflake.name(c.relation) AS name, c.relation = c.root AS is_root
            FROM _snowflake_convert.copies(what) AS c),
        notes (place, note) AS (
            SELECT 1, format('columns move to the end of %s: after the swap, INSERT and COPY without a list of columns'
                ' write into the wrong columns, without an error if the types fit: name the columns',
                string_agg('table ' || c.name, ', ' ORDER BY c.name))
            FROM changed AS c WHERE c.is_root HAVING count(*) > 0
            UNION ALL SELECT 2, 'prepared statements that return whole rows or keys fail once in each session '
                'after the first step and after the swap:'
                ' cached plan must not change result type'
            WHERE EXISTS (SELECT FROM changed)
            UNION ALL SELECT 2, format('the swap locks up to %s tables together, which foreign keys, views or also tie to each other, or which need few locks', s.tables)
            FROM _snowflake_convert.lock_room() AS r CROSS JOIN _snowflake_convert.greatest_swap(work, r.locks) AS s
            WHERE s.tables > 1 AND EXISTS (SELECT FROM changed)
            UNION ALL SELECT 2, format('published by %I: before the first step, subscribers need: %s; drop these columns there after the swap', p.pubname,
                string_agg(DISTINCT format('ALTER TABLE %s ADD COLUMN %I bigint', _snowflake.name(c.relation), c.copy), '; '))
            FROM _snowflake_convert.copies(what) AS c JOIN pg_class AS t ON t.oid = c.relation JOIN pg_namespace AS n ON n.oid = t.relnamespace
            JOIN pg_publication_tables AS u ON u.schemaname = n.nspname AND u.tablename = t.relname JOIN pg_publication AS p ON p.pubname = u.pubname
            WHERE NOT EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = p.oid AND r.prrelid = t.oid AND r.prattrs IS NOT NULL) GROUP BY p.pubname
            UNION ALL SELECT 3, format('function %s returns rows of table %s: '
                'if its text lists the columns, it fails from the first step on', p.oid::regprocedure, c.name)
            FROM changed AS c
            JOIN pg_class AS t ON t.oid = c.id
            JOIN pg_type AS y ON y.oid = t.reltype
            JOIN pg_proc AS p ON p.prorettype IN (y.oid, y.typarray)
            UNION ALL SELECT 4, format('trigger %I of table %s uses OLD.* or NEW.*, which have further columns from the first step on, '
                'and another order after the swap', g.tgname, c.name)
            FROM changed AS c
            JOIN pg_trigger AS g ON g.tgrelid = c.id AND NOT g.tgisinternal AND g.tgparentid = 0
            JOIN pg_proc AS p ON p.oid = g.tgfoid AND p.prosrc ~* '\m(old|new)\.\*')
        SELECT NULL::bigint, 'note', NULL::text, NULL::text, NULL::bigint, n.note FROM notes AS n ORDER BY n.place, n.note;
END $$;

CREATE FUNCTION snowflake_convert_plan(relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true, online boolean DEFAULT false,
    backfill boolean DEFAULT false, backfill_by name[] DEFAULT NULL, worker_id bigint DEFAULT NULL, also text[] DEFAULT NULL,
    OUT step bigint, OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake_convert.hold();
    SELECT p.* FROM _snowflake_convert.snowflake_convert_plan(
        relations, schemas, generator, set_default, online, backfill, backfill_by, worker_id, also) AS p;
END;
COMMENT ON FUNCTION snowflake_convert_plan(regclass[], regnamespace[], regclass, boolean, boolean, boolean, name[], bigint, text[]) IS
    'the statements that snowflake_convert(), or with online snowflake_convert_steps(), would run for tables, '
    'or for all tables of a schema, with their locks and the bytes that they rewrite; '
    'obstacles, and notes on what stays as it is; changes nothing';

-- The texts of functions that are made again are not checked, here and in the swap: one may
-- name a view without its schema, or a view that is made later.
CREATE FUNCTION _snowflake_convert.snowflake_convert(relations regclass[], schemas regnamespace[],
    generator regclass, set_default boolean,
    backfill boolean, backfill_by name[], worker_id bigint, also text[]) RETURNS void
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET check_function_bodies = off
    SET quote_all_identifiers = off SET standard_conforming_strings = on
    SET DateStyle = 'ISO' SET IntervalStyle = postgres SET extra_float_digits = 1 SET xmloption = content SET bytea_output = hex AS $$
DECLARE
    what constant _snowflake_convert.request := _snowflake_convert.request(relations, schemas, also, generator, set_default);
    steps text[];
    again text[];
    notes text[];
    obstacles text[];
    told timestamptz := statement_timestamp();
BEGIN
    PERFORM _snowflake_convert.check_backfill(backfill, backfill_by, worker_id, set_default);
    PERFORM _snowflake_convert.need_read_committed();
    -- Once before the lock, and once under it.
    SELECT array_agg(p.statement) FILTER (WHERE p.statement IS NOT NULL),
        array_agg(p.note) FILTER (WHERE p.action = 'note'), array_agg(p.note) FILTER (WHERE p.action = 'obstacle')
    INTO steps, notes, obstacles
    FROM _snowflake_convert.plan(what, backfill_by, worker_id, false, true) AS p;
    IF obstacles IS NOT NULL THEN
        RAISE EXCEPTION 'cannot convert keys: %', obstacles[1]
            USING ERRCODE = CASE WHEN obstacles[1] LIKE 'must be owner of %' THEN 'insufficient_privilege'
                ELSE 'object_not_in_prerequisite_state' END,
            DETAIL = coalesce('Further obstacles: ' || nullif(array_to_string(obstacles[2:], '; '), '') || '.',
                'There is no other obstacle.'),
            HINT = 'Nothing has been changed. snowflake_convert_plan() lists all obstacles.';
    ELSIF steps IS NULL THEN
        RAISE NOTICE 'there is nothing to convert';
        RETURN;
    END IF;
    EXECUTE steps[1];
    SELECT array_agg(p.statement) FILTER (WHERE p.statement IS NOT NULL) INTO again
    FROM _snowflake_convert.plan(what, backfill_by, worker_id, false, false) AS p
    HAVING count(*) FILTER (WHERE p.action = 'obstacle') = 0;
    IF again IS DISTINCT FROM steps THEN
        RAISE EXCEPTION 'could not convert keys: tables were changed before they were locked'
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Try again.';
    END IF;

    FOR i IN 2 .. cardinality(steps) LOOP
        IF clock_timestamp() > told + interval '10 seconds' THEN
            told := clock_timestamp();
            RAISE NOTICE 'step % of %: %', i, cardinality(steps), left(steps[i], 100);
        END IF;
        PERFORM _snowflake_convert.run(steps[i]);
    END LOOP;
    FOR i IN 1 .. coalesce(cardinality(notes), 0) LOOP
        RAISE NOTICE '%', notes[i];
    END LOOP;
END $$;

CREATE PROCEDURE snowflake_convert(relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    generator regclass DEFAULT NULL, set_default boolean DEFAULT true,
    backfill boolean DEFAULT false, backfill_by name[] DEFAULT NULL, worker_id bigint DEFAULT NULL, also text[] DEFAULT NULL) LANGUAGE sql
BEGIN ATOMIC
    SELECT _snowflake_convert.hold();
    SELECT _snowflake_convert.snowflake_convert(
        relations, schemas, generator, set_default, backfill, backfill_by, worker_id, also);
END;
COMMENT ON PROCEDURE snowflake_convert(regclass[], regnamespace[], regclass, boolean, boolean, name[], bigint, text[]) IS
    'changes smallint and integer keys to bigint, with all foreign keys that reach them, and makes a generator their default: '
    'all or nothing, with the statements of snowflake_convert_plan()';
