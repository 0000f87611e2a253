-- snowflake_convert() changes smallint and integer keys to bigint, with all foreign keys
-- that reach them, and makes a generator their default.
--
-- snowflake_convert_plan() returns the statements in order, and changes nothing. Without
-- `online`, snowflake_convert() locks the tables, makes the plan again, and runs exactly
-- these statements, in the caller's transaction; online.sql has the other way.
--
-- The plan is made in four steps, of which work_of() joins the first three. types.sql has what
-- they hand on:
--
-- 1. columns() in columns.sql: the columns to change. It begins with the keys of the
--    tables, and follows foreign keys until there is no further column. A column that is
--    inherited stands for the column of the topmost table: PostgreSQL changes it there only,
--    with all partitions and child tables. So a foreign key that one partition alone has
--    leads to the column in the whole table.
-- 2. dependents() in objects.sql: what depends on these columns, as pg_depend has it, and
--    what depends on that, with a level: an object is dropped before those of lower levels,
--    and made again after them.
-- 3. remake() there: the statements that drop one such object and make it again, from what
--    the catalogs say of it.
-- 4. plan() returns the rows: obstacles.sql has the obstacles, statements.sql what is done
--    with the columns, notes.sql the notes. With a worker ID for old rows, it adds what
--    backfill.sql says; foreign keys of columns that get new values are dropped before, and
--    added again after.
--
-- What ALTER TABLE .. TYPE does by itself is left to it: indexes, constraints with their
-- foreign keys, statistics objects, replica identity, the sequence of an identity, casts of
-- defaults, partitions. What PostgreSQL would refuse in the midst of the work is found in
-- step 2, and is an obstacle: the plan has a row that says so, and the conversion does not
-- begin. An object of a kind that is not known here is an obstacle too.
--
-- No function here is SECURITY DEFINER, but for one that backfill_map() of backfill.sql makes
-- in pg_temp, with its names bound: the caller needs to own what is changed. The head of
-- sql/set_default.sql says what the search_path of these functions means.
--
-- The functions of schema _snowflake_convert read, compare and make texts under settings that
-- the functions for users fix, which alone call them: quote_all_identifiers and
-- standard_conforming_strings as PostgreSQL has them; those that snowflake_convert_run() or a
-- client calls fix them themselves. What makes a plan runs without JIT: to compile these queries
-- would take longer than to run them.

-- What a conversion has to do.
CREATE FUNCTION _snowflake_convert.work_of(what _snowflake_convert.request, backfill_by name[], worker_id bigint, in_use boolean) RETURNS _snowflake_convert.work
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    work _snowflake_convert.work;
    wanted constant text := _snowflake_convert.wanted_default((what).generator);
BEGIN
    work.generator := what.generator;
    work.set_default := what.set_default;
    work.also := what.also;
    work.worker_id := worker_id;
    work.in_use := in_use;
    work.columns := ARRAY(
        SELECT ROW (c.relation, c.name, c.number, c.type, c.base, c.is_key, c.base <> 'bigint'::regtype,
            NULL, NULL, NULL)::_snowflake_convert.key_column
        FROM _snowflake_convert.columns(what) AS c);
    work.keys := '{}';
    IF worker_id IS NOT NULL THEN
        work.keys := ARRAY(SELECT k FROM _snowflake_convert.backfill_keys(work.columns, wanted, backfill_by) AS k);
        work.columns := ARRAY(
            SELECT ROW (c.relation, c.name, c.number, c.type, c.base, c.is_key, c.is_altered OR b.origin IS NOT NULL,
                b.origin, b.origin_name, b.origins)::_snowflake_convert.key_column
            FROM unnest(work.columns) WITH ORDINALITY AS c
            LEFT JOIN _snowflake_convert.backfill_columns(work.columns, work.keys, work.also) AS b ON b.relation = c.relation AND b.name = c.name
            ORDER BY c.ordinality);
        work.map := (SELECT CASE WHEN c.relpersistence = 't' THEN 'pg_temp' ELSE quote_ident(n.nspname) END || '.snowflake_old_ids'
            FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = (work.keys)[1].relation);
    END IF;
    work.members := ARRAY(
        SELECT ROW (c.relation, c.name, f.member, f.number, f.expression, c.is_altered, false)::_snowflake_convert.member FROM unnest(work.columns) AS c
        CROSS JOIN _snowflake.inheritance(c.relation, c.name) AS f);
    -- Generated columns that are made of them.
    work.members := work.members || ARRAY(
        SELECT ROW (g.relation, g.name, f.member, f.number, f.expression, true, true)::_snowflake_convert.member
        FROM (SELECT DISTINCT r.id::oid, a.attname
            FROM unnest(work.members) AS m
            JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
                AND d.refobjid = m.member AND d.refobjsubid = m.number
            JOIN pg_attrdef AS e ON e.oid = d.objid AND e.adrelid = m.member
            JOIN pg_attribute AS a ON a.attrelid = m.member AND a.attnum = e.adnum AND a.attgenerated <> ''
            CROSS JOIN _snowflake_convert.column_roots(m.member, a.attname) AS r (id) WHERE m.is_altered) AS g (relation, name)
        CROSS JOIN _snowflake.inheritance(g.relation, g.name) AS f);
    work.tables := ARRAY(SELECT m.member FROM unnest(work.members) AS m WHERE m.is_altered);
    work.numbers := ARRAY(SELECT m.number FROM unnest(work.members) AS m WHERE m.is_altered);
    work.objects := _snowflake_convert.objects(work.tables, work.numbers);
    -- Everything about the keys that have their default already is left out.
    work.columns := ARRAY(
        SELECT (work.columns)[c.ordinality] FROM unnest(work.columns) WITH ORDINALITY AS c
        WHERE c.is_altered OR work.set_default AND c.is_key AND EXISTS (
            SELECT FROM unnest(work.members) AS m
            WHERE m.relation = c.relation AND m.name = c.name AND m.expression IS DISTINCT FROM wanted)
        ORDER BY c.ordinality);
    work.members := ARRAY(
        SELECT m FROM unnest(work.members) AS m
        WHERE m.is_generated OR EXISTS (SELECT FROM unnest(work.columns) AS c WHERE c.relation = m.relation AND c.name = m.name));

    -- The tables to lock: those of the columns, and those that rules, policies and
    -- triggers belong to.
    work.sources := ARRAY(
        SELECT c.relation FROM unnest(work.columns) AS c
        UNION SELECT m.relation FROM unnest(work.members) AS m WHERE m.is_generated
        UNION SELECT c.oid FROM unnest(work.objects) AS d
        LEFT JOIN pg_rewrite AS r ON d.class = 'pg_rewrite'::regclass AND r.oid = d.id
        LEFT JOIN pg_trigger AS t ON d.class = 'pg_trigger'::regclass AND t.oid = d.id
        LEFT JOIN pg_policy AS p ON d.class = 'pg_policy'::regclass AND p.oid = d.id
        JOIN pg_class AS c ON c.oid IN (r.ev_class, t.tgrelid, p.polrelid) AND c.relkind IN ('r', 'p'));

    work.statistics := ARRAY(
        SELECT DISTINCT d.objid FROM unnest(work.tables, work.numbers) AS u (id, number)
        JOIN pg_depend AS d ON d.classid = 'pg_statistic_ext'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = u.id AND d.refobjsubid = u.number);
    RETURN work;
END $$;

-- All notes, in the order of the plan.
CREATE FUNCTION _snowflake_convert.notes_of_plan(work _snowflake_convert.work, what _snowflake_convert.request) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
    WITH of_columns (target, note) AS MATERIALIZED (
        SELECT format('column %s.%I ', _snowflake.name(k.relation), k.name), k.note
        FROM _snowflake_convert.keys((what).relations, (what).are_named) AS k WHERE k.note IS NOT NULL AND NOT EXISTS (
            SELECT FROM unnest((work).columns) AS c
            WHERE c.name = k.name
              AND c.relation IN (SELECT _snowflake_convert.column_roots(k.relation, k.name)))
          AND k.relation IS NOT NULL
          AND (k.note LIKE '%: name its table to change it' OR (SELECT b.base FROM pg_attribute AS a
               CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS b WHERE a.attrelid = k.relation AND a.attname = k.name) <> 'bigint'::regtype)),
    notes (note) AS MATERIALIZED (SELECT _snowflake_convert.notes(work) WHERE cardinality((work).columns) > 0)
    SELECT a.note FROM (
        SELECT c.target || c.note FROM of_columns AS c
        UNION ALL
        -- One note for a column, unless the other one says what becomes of its values.
        SELECT n.note FROM notes AS n
        WHERE (work).worker_id IS NOT NULL OR NOT EXISTS (SELECT FROM of_columns AS c WHERE starts_with(n.note, c.target))
        UNION ALL SELECT _snowflake_convert.notes_of_keys(work)) AS a (note)
    -- What would make each INSERT fail comes first.
    ORDER BY a.note NOT LIKE '%, and triggers of these tables run it: %', a.note
$$;

-- The rows of the plan, without numbers: obstacles, then statements, then notes.
CREATE FUNCTION _snowflake_convert.plan(what _snowflake_convert.request, backfill_by name[], worker_id bigint, only_obstacles boolean, is_first boolean,
    OUT action text, OUT statement text, OUT locks text, OUT rewrites bigint, OUT note text)
    RETURNS SETOF record LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    work constant _snowflake_convert.work :=
        _snowflake_convert.work_of(what, backfill_by, worker_id, only_obstacles);
    moved constant record := _snowflake_convert.moved_foreign_keys(work);
    is_backfill constant boolean := cardinality(work.keys) > 0 AND cardinality(work.columns) > 0;
    is_refused boolean;
    every constant text := 'ACCESS EXCLUSIVE';
BEGIN
    PERFORM _snowflake_convert.tell('the plan knows the columns');
    RETURN QUERY SELECT 'obstacle', NULL, NULL, NULL::bigint, o FROM _snowflake_convert.obstacles(work) AS o;
    is_refused := FOUND;
    -- Asked once, and not again under the lock.
    IF is_first AND cardinality(work.columns) > 0 THEN
        RETURN QUERY SELECT 'obstacle', NULL, NULL, NULL::bigint, r.note FROM (
            SELECT f.obstacle FROM _snowflake_convert.references_of(work) AS f
            UNION ALL SELECT v FROM _snowflake_convert.obstacles_of_values(work, NOT is_refused) AS v WHERE work.set_default) AS r (note)
            WHERE r.note IS NOT NULL ORDER BY 5;
        is_refused := is_refused OR FOUND;
    END IF;
    PERFORM _snowflake_convert.tell('the plan knows the obstacles');
    IF only_obstacles THEN
        RETURN;
    END IF;

    RETURN QUERY
        SELECT 'lock', format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(n.name, ', ' ORDER BY n.name)),
            every, NULL::bigint, NULL
        FROM unnest(work.sources) AS s (id) CROSS JOIN _snowflake.name(s.id) AS n (name) HAVING count(*) > 0;
    RETURN QUERY
        SELECT 'drop', d.drop_statement, every, NULL::bigint, NULL FROM unnest(work.objects) WITH ORDINALITY AS d ORDER BY d.ordinality DESC;
    IF is_backfill AND NOT is_refused THEN
        RETURN QUERY
            SELECT 'backfill', s, NULL, NULL::bigint, NULL FROM unnest(_snowflake_convert.backfill_map(work.keys, what.generator, worker_id)) AS s;
    END IF;
    RETURN QUERY SELECT 'drop', s, every, NULL::bigint, NULL FROM unnest(moved.drop_statements) AS s;
    -- DROP COLUMN would not drop a constraint that has the column in an expression.
    RETURN QUERY
        SELECT 'drop', format('ALTER TABLE %s DROP CONSTRAINT %I', _snowflake.name(k.conrelid), k.conname), every, NULL::bigint, NULL
        FROM pg_constraint AS k WHERE k.contype = 'x' AND k.conparentid = 0 AND EXISTS (
            SELECT FROM unnest(work.members) AS f
            WHERE f.is_generated AND f.member = k.conrelid AND f.number = ANY (_snowflake_convert.index_columns(k.conindid))
              AND f.number <> ALL (k.conkey))
        ORDER BY 2;
    RETURN QUERY SELECT 'alter', a.statement, every, a.rewrites, a.note FROM _snowflake_convert.alter_tables(work) AS a;
    RETURN QUERY SELECT 'make', s, every, NULL::bigint, NULL FROM _snowflake_convert.remake_generated(work) AS s;
    RETURN QUERY SELECT 'make', s, every, NULL::bigint, NULL FROM unnest(moved.add_statements) AS s;
    RETURN QUERY SELECT 'make', s, every, NULL::bigint, NULL FROM _snowflake_convert.remake_statistics(work) AS s;
    -- The sequence of an identity is changed with its column.
    RETURN QUERY
        SELECT DISTINCT 'alter', format('ALTER SEQUENCE %s AS bigint', _snowflake.name(s.seqrelid)), every, NULL::bigint, NULL
        FROM unnest(work.tables, work.numbers) AS u (id, number)
        JOIN _snowflake.defaults AS d ON d.relation = u.id AND d.number = u.number
        JOIN pg_sequence AS s ON s.seqrelid = d.sequence WHERE NOT what.set_default AND s.seqtypid <> 'bigint'::regtype
        ORDER BY 2;
    RETURN QUERY
        SELECT 'make', s.statement, CASE WHEN r.is_refresh THEN every END,
            CASE WHEN r.is_refresh THEN pg_total_relation_size(d.id) END, NULL
        FROM unnest(work.objects) WITH ORDINALITY AS d
        CROSS JOIN unnest(d.statements) WITH ORDINALITY AS s (statement, place)
        CROSS JOIN LATERAL (SELECT s.statement LIKE 'REFRESH %') AS r (is_refresh)
        ORDER BY d.ordinality, s.place;
    RETURN QUERY
        SELECT 'default', format('SELECT _snowflake.snowflake_set_default(%L, %L, %L, false)',
            _snowflake.name(c.relation), c.name, _snowflake.name(what.generator)), every, NULL::bigint, NULL
        FROM unnest(work.columns) AS c WHERE what.set_default AND c.is_key;
    RETURN QUERY
        SELECT v.action, v.statement, NULL, NULL::bigint, NULL
        FROM (VALUES ('backfill', format('CREATE TABLE %s AS TABLE pg_temp.snowflake_new_ids', work.map)),
            ('backfill', format('ALTER TABLE %s ADD PRIMARY KEY (relation, column_name, old_id), ALTER new_id SET NOT NULL', work.map)),
            ('drop', 'DROP FUNCTION pg_temp.snowflake_new_id(regclass, name, bigint)'),
            ('drop', 'DROP TABLE pg_temp.snowflake_new_ids')) AS v (action, statement)
        WHERE is_backfill;
    RETURN QUERY
        SELECT DISTINCT 'analyze', format('ANALYZE %s', _snowflake.name(c.relation)), 'SHARE UPDATE EXCLUSIVE', NULL::bigint, NULL
        FROM unnest(work.columns) AS c WHERE c.is_altered ORDER BY 2;
    PERFORM _snowflake_convert.tell('the plan knows the statements');
    RETURN QUERY SELECT 'note', NULL, NULL, NULL::bigint, n FROM _snowflake_convert.notes_of_plan(work, what) AS n WHERE is_first;
END $$;
