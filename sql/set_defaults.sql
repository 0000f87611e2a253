-- snowflake_set_defaults() sets the defaults of all tables of a schema. Which columns are keys
-- is decided here for this function, and for the conversion in convert/columns.sql.

CREATE FUNCTION _snowflake.tables_of(schema regnamespace) RETURNS regclass[]
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(array_agg(c.oid::regclass ORDER BY c.relname), '{}')
    FROM pg_class AS c
    WHERE c.relnamespace = schema AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND NOT EXISTS (
          SELECT FROM pg_depend AS d
          WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
$$;
COMMENT ON FUNCTION _snowflake.tables_of(regnamespace) IS
    'internal, for snowflake_convert() and snowflake_set_defaults(): the tables of a schema, without partitions and tables of extensions';

-- A key is the only column of a primary key, whatever its default. A column that counts,
-- by an identity or a sequence, is a key too if it is part of the primary key, alone has
-- a unique index, or is in a table without either. A key whose values may come from elsewhere is left
-- alone unless somebody names its table: the row of a table of settings has the constant that is its
-- default, and a table whose key is that of another one, without a foreign key, has no default. A
-- generator would make rows there that nothing finds.
CREATE FUNCTION _snowflake.keys(
    relation regclass,
    OUT number smallint, OUT name name, OUT type oid, OUT base regtype, OUT has_default boolean,
    OUT is_key boolean, OUT refers_to regclass, OUT left_alone text)
    RETURNS SETOF record
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH own AS (
        SELECT i.indkey::smallint[] AS columns, i.indnkeyatts AS count, i.indisprimary AS is_primary
        FROM pg_index AS i
        WHERE i.indrelid = relation AND i.indisunique AND i.indpred IS NULL),
    columns AS (
        SELECT a.*, t.base, a.atthasdef OR a.attidentity <> '' AS has_default, e.expression,
            a.attidentity <> '' OR coalesce(e.expression, '') LIKE '%nextval(%' AS counts,
            coalesce((SELECT a.attnum = ANY (o.columns[0:o.count - 1]) FROM own AS o WHERE o.is_primary), false) AS in_primary,
            coalesce((SELECT o.count = 1 FROM own AS o WHERE o.is_primary), false) AS is_single,
            EXISTS (SELECT FROM own AS o WHERE o.count = 1 AND o.columns[0] = a.attnum) AS is_unique,
            NOT EXISTS (SELECT FROM own) AS is_bare
        FROM pg_attribute AS a
        CROSS JOIN _snowflake.base_type(a.atttypid, a.atttypmod) AS t
        LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        CROSS JOIN LATERAL pg_get_expr(d.adbin, d.adrelid) AS e (expression)
        WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '')
    SELECT c.attnum, c.attname, c.atttypid, c.base, c.has_default,
        c.in_primary AND (c.is_single OR c.counts) OR c.counts AND (c.is_unique OR c.is_bare),
        (SELECT f.confrelid::regclass FROM pg_constraint AS f
         WHERE f.conrelid = c.attrelid AND f.contype = 'f' AND c.attnum = ANY (f.conkey)
           AND (f.confrelid <> f.conrelid OR f.conkey <> f.confkey)
         ORDER BY f.conname LIMIT 1),
        -- What a function of users does, nobody knows: mostly it counts.
        CASE WHEN c.counts OR EXISTS (SELECT FROM _snowflake.defaults AS u WHERE u.relation = c.attrelid AND u.number = c.attnum) THEN NULL
            WHEN c.has_default THEN format('has the default %s, which draws from no sequence', c.expression)
            -- By the size of files: no code of others runs.
            WHEN (SELECT sum(pg_relation_size(f.member)) FROM _snowflake.inheritance(c.attrelid, c.attname) AS f) > 0
                THEN 'has no default, and its table has rows' END
    FROM columns AS c
    WHERE c.in_primary OR c.counts
    ORDER BY c.attnum
$$;
COMMENT ON FUNCTION _snowflake.keys(regclass) IS
    'internal, for snowflake_convert() and snowflake_set_defaults(): the columns of a table '
    'that are in its primary key or count, which of them are keys that get IDs, the table to which one refers, '
    'and why it is left alone unless its table is named';

-- Locks tables as ALTER TABLE does. Others queue behind who waits for a lock, and behind each that he has: so it waits for half a
-- second at most, for all together, gives back what it has got, and tries again after a pause. The table that could not be locked
-- comes first then. A caller who has set lock_timeout waits for each table by itself, as he says.
CREATE FUNCTION _snowflake.lock_tables(tables regclass[]) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET lock_timeout = 0
AS $$
DECLARE
    tried integer := 0;
    deadline timestamptz;
    it regclass;
BEGIN
    LOOP
        BEGIN
            deadline := clock_timestamp() + interval '500 ms';
            FOREACH it IN ARRAY tables LOOP
                PERFORM set_config('lock_timeout', greatest(1, ceil(extract(epoch FROM deadline - clock_timestamp()) * 1000))::text, true);
                IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = it) THEN
                    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', it);
                END IF;
            END LOOP;
            RETURN;
        EXCEPTION WHEN lock_not_available OR deadlock_detected OR undefined_table OR invalid_schema_name THEN
            tried := tried + 1;
            IF tried >= 1000 THEN
                RAISE EXCEPTION 'could not lock the tables; number of tries: %', tried USING ERRCODE = 'lock_not_available',
                    HINT = 'End the transactions that hold them, or SET lock_timeout to wait for each table by itself.';
            ELSIF tried >= 4 AND tried & (tried - 1) = 0 THEN
                RAISE NOTICE 'the locks were not to be had in % tries: process % holds table %', tried, (SELECT coalesce(string_agg(DISTINCT l.pid::text, ', '), '-')
                    FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database AND d.datname = current_database()
                    WHERE l.relation = it AND l.granted AND l.pid <> pg_backend_pid()), _snowflake.name(it);
            END IF;
            tables := it || array_remove(tables, it);
        END;
        PERFORM pg_sleep(random() * least(tried, 40) / 4.0);
    END LOOP;
END
$$;

CREATE FUNCTION _snowflake.snowflake_set_defaults(
    schema regnamespace, generator regclass,
    OUT relation regclass, OUT is_set boolean, OUT severity text, OUT result text)
    RETURNS SETOF record
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    key record;
BEGIN
    IF schema IS NULL THEN
        RAISE EXCEPTION 'schema must not be null' USING ERRCODE = 'null_value_not_allowed',
            HINT = 'As in snowflake_set_defaults(''public'')';
    END IF;
    -- A generator that is none is an error once, and not one for each table.
    PERFORM _snowflake.next_id_range(generator, NULL);
    IF current_setting('lock_timeout') = '0' THEN
        PERFORM _snowflake.lock_tables(ARRAY(
            SELECT t.id FROM unnest(_snowflake.tables_of(schema)) AS t (id) JOIN pg_class AS c ON c.oid = t.id AND pg_has_role(c.relowner, 'USAGE')
            WHERE (c.relpersistence <> 't' OR c.relnamespace = pg_my_temp_schema()) AND EXISTS (
                SELECT FROM _snowflake.keys(t.id) AS k WHERE k.is_key AND k.refers_to IS NULL AND k.left_alone IS NULL AND k.base = 'bigint'::regtype)));
    END IF;
    FOREACH relation IN ARRAY _snowflake.tables_of(schema) LOOP
        is_set := false;
        severity := 'info';
        result := NULL;
        FOR key IN
            SELECT k.* FROM _snowflake.keys(relation) AS k WHERE k.is_key ORDER BY k.number
        LOOP
            IF key.refers_to IS NOT NULL THEN
                result := concat_ws('; ', result, format('column "%s" refers to table %s, and has the keys of that table',
                    key.name, _snowflake.name(key.refers_to)));
                CONTINUE;
            ELSIF key.base NOT IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
                AND (key.left_alone IS NOT NULL OR NOT key.has_default) THEN
                CONTINUE;
            ELSIF key.left_alone IS NOT NULL THEN
                result := concat_ws('; ', result, format('column "%s" %s, so it was left alone: if its values are to come from here, '
                    'call snowflake_set_default(%L, %L)', key.name, key.left_alone, _snowflake.name(relation), key.name));
                severity := CASE severity WHEN 'error' THEN severity ELSE 'warning' END;
                CONTINUE;
            END IF;
            BEGIN
                result := concat_ws('; ', result, _snowflake.snowflake_set_default(relation, key.name, generator, false));
                is_set := true;
                severity := CASE WHEN severity = 'info' AND result ~ 'new rows go to default partition|has a cast to a narrower type|roles that insert rows need:' THEN 'warning' ELSE severity END;
            EXCEPTION WHEN OTHERS THEN
                result := concat_ws('; ', result, SQLERRM);
                severity := 'error';
            END;
        END LOOP;
        result := coalesce(result, 'no column is a key that gets numbers from this database');
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION snowflake_set_defaults(
    schema regnamespace, generator regclass DEFAULT NULL,
    OUT relation regclass, OUT is_set boolean, OUT severity text, OUT result text)
    RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake.hold();
    SELECT s.* FROM _snowflake.snowflake_set_defaults(schema, generator) AS s;
END;
COMMENT ON FUNCTION snowflake_set_defaults(regnamespace, regclass) IS
    'makes a generator the default of the keys of all tables of a schema; returns a row for each table: '
    'whether a default is set now, and what was done, or why nothing was; with severity warning, a person has to decide: a key was left alone, '
    'rows go to a default partition, a cast may refuse IDs, or roles lack a privilege; with error, it could not be changed';
