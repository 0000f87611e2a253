-- Whether a table takes IDs is tried on a copy of it, which is gone again when that is known: the
-- catalogs do not tell what an expression does with a number of 63 bits.
--
-- 1. The caller makes an empty temporary table with the columns, which runs no code, and gives it to
--    the owner of the table. All else runs as that owner, in a security-restricted operation.
-- 2. One row of the table is put into it, with the values of the columns raised by the next ID: so
--    they are IDs, and those that were equal, or in an order, still are. Of a table without rows, the
--    columns alone get IDs, and all others are null.
-- 3. Generated columns, constraints, indexes and statistics objects are made one by one. PostgreSQL
--    evaluates each for the row, and refuses what cannot be. No trigger is made, so none fires.
--
-- The caller runs this in a block that it ends by an error, so that nothing stays.

-- The path by which a role finds what is named without a schema: that of its sessions.
CREATE FUNCTION _snowflake.usual_path(role oid) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws(', ', 'pg_catalog', nullif(coalesce(
        (SELECT substr(c.setting, length('search_path=') + 1)
         FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS c (setting)
         WHERE c.setting LIKE 'search\_path=%' AND s.setrole IN (0, role)
           AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database()))
         ORDER BY s.setrole <> 0 DESC, s.setdatabase <> 0 DESC LIMIT 1),
        (SELECT s.reset_val FROM pg_settings AS s WHERE s.name = 'search_path')), ''), 'pg_temp')
$$;

-- As read_as_owner(). Planning a query runs functions in the expressions of indexes, even if it needs
-- none of them, and they may name objects without a schema. So if one is not found, the query runs
-- again by the path that the owner's own statements have: PostgreSQL's own names come first in it too. The
-- setting ends with the call.
-- The query names its functions with their schema.
CREATE FUNCTION _snowflake.read_as_usual(relation regclass, query text) RETURNS text
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    path text;
BEGIN
    RETURN _snowflake.read_as_owner(relation, query);
EXCEPTION WHEN undefined_function OR undefined_table OR undefined_object OR invalid_schema_name THEN
    path := (SELECT _snowflake.usual_path(c.relowner) FROM pg_class AS c WHERE c.oid = relation);
    RETURN _snowflake.read_as_owner(relation, format('SELECT pg_catalog.set_config(%L, %L, true); ', 'search_path', path) || query);
END
$$;

-- What PostgreSQL says to a statement about a table that its owner runs by a path; null if it runs. What
-- has to do with other sessions, or with the room of the server, says nothing of the table.
CREATE FUNCTION _snowflake.refusal(relation regclass, statement text, path text, OUT state text, OUT message text)
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET row_security = off
AS $$
DECLARE
    context text;
    function name;
BEGIN
    PERFORM _snowflake.run_as_owner(relation, format('SELECT pg_catalog.set_config(%L, %L, true); ', 'search_path', path) || statement);
EXCEPTION WHEN lock_not_available OR deadlock_detected OR insufficient_resources OR system_error THEN
    RAISE;
WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, context = PG_EXCEPTION_CONTEXT;
    -- The row type of a copy is that of the copy only.
    IF state IN ('42804', '42846', '42883') AND EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = pg_my_temp_schema()
        AND message ~ ('(^|\W)' || regexp_replace(c.relname, '(\W)', '\\\1', 'g') || '(\W|$)'))
    THEN
        state := NULL;
        message := NULL;
        RETURN;
    END IF;
    function := substring(context FROM '^(?:SQL|PL/pgSQL) function "?(?:[^\s"(.]+\.)?([^\s"(]+)');
    IF state IN ('42883', '42P01', '42704', '3F000') AND function IS NOT NULL THEN
        message := message || coalesce((SELECT ': names that a function has without their schema are not found there: ' || string_agg(
                format('ALTER FUNCTION %s SET search_path = %I, pg_temp', p.oid::regprocedure, n.nspname), '; ' ORDER BY p.oid)
            FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
            WHERE p.proname = function AND n.nspname <> 'pg_catalog' AND p.proconfig IS NULL), '');
    END IF;
END
$$;

-- The name of a copy: that of the table, by which an expression can name a whole row, unless a temporary table has it.
CREATE FUNCTION _snowflake.copy_name(relation name) RETURNS name
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT v.name FROM (SELECT 0, relation UNION ALL SELECT n, (left(relation::text, 40) || '~' || n)::name FROM generate_series(1, 1000) AS n) AS v (place, name)
    WHERE to_regclass('pg_temp.' || quote_ident(v.name)) IS NULL ORDER BY v.place LIMIT 1
$$;

-- Whether an operator class of an index is for integers alone.
CREATE FUNCTION _snowflake.has_narrow_class(classes oid[]) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM unnest(classes) AS c (id) JOIN pg_opclass AS o ON o.oid = c.id AND o.opcintype IN ('smallint'::regtype, 'integer'::regtype)
        WHERE NOT o.opcdefault OR NOT EXISTS (SELECT FROM pg_opclass AS w WHERE w.opcmethod = o.opcmethod AND w.opcintype = 'bigint'::regtype AND w.opcdefault))
$$;

-- Whether a table has anything that could refuse values: PostgreSQL evaluates nothing else of it.
CREATE FUNCTION _snowflake.has_expressions(relation regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = relation AND k.contype = 'c')
        OR EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attgenerated <> '' AND NOT a.attisdropped)
        OR EXISTS (SELECT FROM pg_statistic_ext AS x WHERE x.stxrelid = relation)
        OR EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = relation
            AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR _snowflake.has_narrow_class(i.indclass::oid[])))
$$;

-- Makes such a copy, and returns what of the table refuses IDs. Its columns get type bigint if they are
-- narrower, and so do columns that are generated from them.
CREATE FUNCTION _snowflake.try_ids(relation regclass, columns name[], next_id bigint, copy name, path text) RETURNS SETOF text
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name constant text := _snowflake.name(relation);
    target constant text := format('pg_temp.%I', copy);
    owner constant regrole := (SELECT c.relowner FROM pg_class AS c WHERE c.oid = relation);
    numbers constant smallint[] := ARRAY(
        SELECT a.attnum FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attname = ANY (columns) AND NOT a.attisdropped);
    changes text;
    others text;
    of_row record;
    it record;
    refused record;
    has_row boolean := false;
    is_refused boolean := false;
BEGIN
    EXECUTE format('CREATE TEMPORARY TABLE %I (LIKE %s)', copy, table_name);
    SELECT string_agg(format('ALTER COLUMN %I ' || CASE a.attgenerated WHEN '' THEN 'TYPE bigint' ELSE 'DROP NOT NULL' END, a.attname), ', ')
            FILTER (WHERE a.attgenerated <> '' OR a.attnum = ANY (numbers) AND a.atttypid IN ('smallint'::regtype, 'integer'::regtype)),
        string_agg(format('ALTER COLUMN %I DROP NOT NULL', a.attname), ', ') FILTER (WHERE a.attnotnull AND a.attnum <> ALL (numbers))
    INTO changes, others FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped;
    IF changes IS NOT NULL THEN
        EXECUTE format('ALTER TABLE %s %s', target, changes);
    END IF;
    IF owner <> quote_ident(current_user)::regrole THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %s', target, owner);
    END IF;
    of_row := _snowflake.refusal(target::regclass, (
        SELECT format('INSERT INTO %s (%s) SELECT %s FROM %s LIMIT %s', target, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
            string_agg(CASE WHEN a.attnum = ANY (numbers) THEN format('%I::bigint OPERATOR(pg_catalog.+) %s::bigint', a.attname, next_id)
                ELSE quote_ident(a.attname) END, ', ' ORDER BY a.attnum), table_name,
            -- No row is fetched from elsewhere.
            (SELECT count(*) = 0 FROM _snowflake.inheritance(relation, columns[1]) AS f JOIN pg_class AS c ON c.oid = f.member AND c.relkind = 'f')::integer)
        FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''), path);
    IF of_row.state IS NULL THEN
        has_row := _snowflake.read_as_owner(target::regclass, format('SELECT EXISTS (SELECT FROM %s)', target));
    END IF;
    IF NOT has_row THEN
        IF others IS NOT NULL THEN
            EXECUTE format('ALTER TABLE %s %s', target, others);
        END IF;
        PERFORM _snowflake.refusal(target::regclass, format('INSERT INTO %s (%s) VALUES (%s)', target,
            (SELECT string_agg(quote_ident(c), ', ') FROM unnest(columns) AS c), (SELECT string_agg(next_id::text, ', ') FROM unnest(columns))), path);
    END IF;
    FOR it IN
        WITH expressions AS (
            SELECT a.attnum, a.attname, a.atttypid, a.atttypmod, a.attgenerated, pg_get_expr(d.adbin, d.adrelid) AS text,
                EXISTS (SELECT FROM pg_depend AS p WHERE p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                    AND p.refclassid = 'pg_class'::regclass AND p.refobjid = relation AND p.refobjsubid = ANY (numbers)) AS is_made_of
            FROM pg_attribute AS a JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = relation AND a.attgenerated <> '' AND NOT a.attisdropped)
        SELECT v.* FROM (
            SELECT 1, e.attnum::text, format('generated column %s.%I', table_name, e.attname), format(
                'ALTER TABLE %1$s DROP COLUMN %2$I, ADD COLUMN %2$I %3$s GENERATED ALWAYS AS (%4$s) %5$s', target, e.attname,
                CASE WHEN e.is_made_of AND changes LIKE '% TYPE bigint%' AND e.atttypid IN ('smallint'::regtype, 'integer'::regtype) THEN 'bigint'
                    ELSE format_type(e.atttypid, e.atttypmod) END, e.text, CASE e.attgenerated WHEN 's' THEN 'STORED' ELSE 'VIRTUAL' END)
            FROM expressions AS e
            UNION ALL
            -- A row of nulls says nothing of conditions on other columns.
            SELECT 2, k.conname, format('constraint %I of table %s', k.conname, table_name),
                format('ALTER TABLE %s ADD CONSTRAINT %I %s', target, k.conname, pg_get_constraintdef(k.oid))
            FROM pg_constraint AS k
            WHERE k.conrelid = relation AND k.contype = 'c' AND k.convalidated AND (has_row OR k.conkey <@ numbers)
            UNION ALL
            SELECT 3, x.relname, format('index %s', _snowflake.name(x.oid)), regexp_replace(pg_get_indexdef(x.oid),
                '^CREATE (?:UNIQUE )?INDEX (?:"(?:[^"]|"")*"|[^" ]+) ON (?:ONLY )?(?:(?:"(?:[^"]|"")*"|[^". ]+)\.)?(?:"(?:[^"]|"")*"|[^". ]+)(?= USING )',
                'CREATE INDEX ON ' || replace(target, '\', '\\'))
            FROM pg_index AS i JOIN pg_class AS x ON x.oid = i.indexrelid
            WHERE i.indrelid = relation AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR _snowflake.has_narrow_class(i.indclass::oid[]))
            UNION ALL
            -- Between the name and the table.
            SELECT 4, x.stxname, format('statistics object %I.%I', n.nspname, x.stxname), format('CREATE STATISTICS pg_temp.%I', x.stxname)
                || substring(d.text FROM '^CREATE STATISTICS (?:"(?:[^"]|"")*"|[^". ]+)\.(?:"(?:[^"]|"")*"|[^". ]+)(.* FROM )') || target
            FROM pg_statistic_ext AS x JOIN pg_namespace AS n ON n.oid = x.stxnamespace CROSS JOIN pg_get_statisticsobjdef(x.oid) AS d (text)
            WHERE x.stxrelid = relation) AS v (phase, place, described, statement)
        ORDER BY v.phase, v.place
    LOOP
        refused := _snowflake.refusal(target::regclass, it.statement, path);
        IF refused.state IS NOT NULL THEN
            is_refused := true;
            RETURN NEXT format('%s does not take new keys: %s', it.described, refused.message);
        END IF;
    END LOOP;
    IF of_row.state IS NOT NULL AND NOT is_refused THEN
        RETURN NEXT format('table %s does not take new keys: %s', table_name, of_row.message);
    END IF;
END
$$;

-- What of a table refuses IDs in a column, as its owner's statements find names. Nothing stays. Only what an
-- expression is made of the column is tried: most tables have none, and those take IDs.
CREATE FUNCTION _snowflake.refusals(relation regclass, column_name name, next_id bigint) RETURNS text[]
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    class constant pg_class := (SELECT c FROM pg_class AS c WHERE c.oid = relation);
    refusals text[] := '{}';
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute AS a JOIN pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
        LEFT JOIN pg_constraint AS k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
        LEFT JOIN pg_index AS i ON d.classid = 'pg_class'::regclass AND i.indexrelid = d.objid
        LEFT JOIN pg_attrdef AS e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
        WHERE a.attrelid = relation AND a.attname = column_name
          AND (k.contype = 'c' OR i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR e.adnum <> a.attnum))
        OR NOT has_database_privilege(current_database(), 'TEMPORARY') OR NOT has_database_privilege(class.relowner, current_database(), 'TEMPORARY')
    THEN
        RETURN refusals;
    END IF;
    BEGIN
        refusals := ARRAY(SELECT _snowflake.try_ids(relation, ARRAY[column_name], next_id, _snowflake.copy_name(class.relname),
            _snowflake.usual_path(class.relowner)));
        RAISE EXCEPTION USING ERRCODE = 'SFTRY', MESSAGE = 'the trial has ended';
    EXCEPTION WHEN SQLSTATE 'SFTRY' THEN
        RETURN refusals;
    END;
END
$$;
