-- snowflake_id.new_keys: keys of new tables get snowflake IDs by themselves, so that nobody has
-- to change a model or a migration.
--
-- The trigger fires after each CREATE TABLE, ALTER TABLE and CREATE SCHEMA of everybody, and
-- its function runs with the rights of that command, which may be those of a superuser:
--
-- 1. Where the setting is off, the function reads that setting, and ends. It is no C function:
--    commands work on a server that lacks the library.
-- 2. Where the setting is on, it touches a key only if this command has made both the key and
--    the sequence that the key owns. pg_dump makes them by separate commands, and so does
--    pg_upgrade: their setval() finds its sequence. So nothing that was there before changes.
-- 3. It runs no code of others: it evaluates no default, condition or expression, and has none
--    evaluated. Whether a table has rows is asked of the file's size.
-- 4. Its statements name objects, and the owner of a schema may rename it meanwhile. So in the
--    end the key is looked at by its OID, and the command fails unless all is as it should be.
CREATE FUNCTION _snowflake.new_keys() RETURNS event_trigger
    LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
    issue regprocedure;
    key record;
    obstacle text;
    is_done boolean := false;
BEGIN
    -- Without the library there is no such setting, unless the database or the role has it.
    IF current_setting('snowflake_id.new_keys', true) IS DISTINCT FROM 'on' THEN
        RETURN;
    END IF;
    -- The statements below fire this trigger again.
    PERFORM set_config('snowflake_id.new_keys', 'off', true);
    issue := _snowflake.issuer(true);
    FOR key IN
        SELECT c.oid::regclass AS relation, c.relowner AS owner, a.attname AS name, a.attidentity AS identity,
            a.atttypid AS type, format('%s.%I', _snowflake.name(c.oid), a.attname) AS described,
            s.oid::regclass AS sequence, _snowflake.name(s.oid) AS sequence_name
        FROM pg_event_trigger_ddl_commands() AS e
        JOIN pg_class AS s ON s.oid = e.objid AND s.relkind = 'S'
        JOIN pg_sequence AS q ON q.seqrelid = s.oid
        JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
        JOIN pg_class AS c ON c.oid = d.refobjid
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = d.refobjsubid
        JOIN pg_constraint AS k ON k.conrelid = c.oid AND k.contype = 'p' AND k.conkey = ARRAY[a.attnum]
        WHERE e.classid = 'pg_class'::regclass AND e.command_tag = 'CREATE SEQUENCE' AND NOT e.in_extension
          -- The key is younger than the sequence, which this command has made.
          AND k.xmin = s.xmin AND k.cmin::text::bigint > s.cmin::text::bigint
          AND c.relpersistence <> 't' AND a.attinhcount = 0
          -- Bounds and steps that a command gives are meant; a smallint has bounds of its own.
          AND (q.seqincrement, q.seqmin, q.seqmax, q.seqcycle)
              = (1, 1, CASE a.atttypid WHEN 'bigint'::regtype THEN 9223372036854775807 ELSE 2147483647 END, false)
          -- Nothing else takes numbers from it.
          AND NOT EXISTS (
              SELECT FROM pg_depend AS o
              LEFT JOIN pg_attrdef AS f ON o.classid = 'pg_attrdef'::regclass AND f.oid = o.objid
              LEFT JOIN pg_attribute AS t ON t.attrelid = f.adrelid AND t.attnum = f.adnum
              WHERE o.refclassid = 'pg_class'::regclass AND o.refobjid = s.oid AND o.deptype = 'n'
                AND (coalesce(pg_partition_root(f.adrelid), f.adrelid), t.attname) IS DISTINCT FROM (c.oid, a.attname))
          -- The rows of a table that gets a column have its numbers already.
          AND (tg_tag <> 'ALTER TABLE' OR (
              SELECT sum(pg_relation_size(f.member)) FROM _snowflake.inheritance(c.oid, a.attname) AS f) = 0)
        ORDER BY s.oid
    LOOP
        obstacle := (
            SELECT CASE WHEN key.type = 'integer'::regtype THEN 'It is of type integer, which cannot hold them.'
                WHEN NOT pg_has_role(key.owner, 'USAGE') THEN format('Role %I owns the table.', pg_get_userbyid(key.owner))
                WHEN NOT has_schema_privilege(p.pronamespace, 'USAGE') OR NOT has_sequence_privilege(g, 'USAGE, UPDATE') THEN
                    format('Role %I lacks USAGE on schema %s, or on sequence %s.', current_user, p.pronamespace::regnamespace, g) END
            FROM pg_proc AS p CROSS JOIN _snowflake.default_generator() AS g WHERE p.oid = issue);
        IF obstacle IS NOT NULL THEN
            RAISE WARNING 'key % gets no snowflake IDs', key.described
                USING DETAIL = format('%s Its numbers come from sequence %s: another server issues the same ones.', obstacle, key.sequence_name),
                HINT = CASE key.type WHEN 'integer'::regtype THEN 'Declare it as bigint in the model or the migration.'
                    ELSE format('Grant what is missing, and let the owner of the table call snowflake_set_default(%L).', key.relation) END;
            CONTINUE;
        END IF;

        IF key.identity <> '' THEN
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', key.relation, key.name);
        END IF;
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', key.relation, key.name, issue);
        IF key.identity = '' THEN
            EXECUTE format('DROP SEQUENCE %s', key.sequence);
        END IF;
        IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = key.sequence)
            OR EXISTS (SELECT FROM _snowflake.inheritance(key.relation, key.name) AS f WHERE f.functions <> ARRAY[issue::oid])
        THEN
            RAISE EXCEPTION 'could not set the default of %', key.described
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'Another session has renamed its schema.', HINT = 'Try again.';
        END IF;
        is_done := true;
        RAISE NOTICE 'key % has default % in place of %', key.described, issue,
            CASE key.identity WHEN '' THEN 'sequence ' || key.sequence_name ELSE 'an identity' END
            USING DETAIL = 'Its sequence is dropped.' || CASE WHEN key.identity = 'a' THEN
                ' It is no longer GENERATED ALWAYS: a default gives way to any value that a statement gives, also with OVERRIDING USER VALUE.' ELSE '' END;
    END LOOP;

    IF is_done THEN
        PERFORM _snowflake.warn_if_not_ready(_snowflake.default_generator());
    END IF;
    FOR key IN
        SELECT DISTINCT _snowflake.name(k.conrelid) AS table_name, a.attname AS name, a.atttypid::regtype AS type,
            format('%s.%I', _snowflake.name(k.confrelid), r.attname) AS refers_to
        FROM pg_event_trigger_ddl_commands() AS e
        JOIN pg_constraint AS k ON k.contype = 'f' AND k.conparentid = 0 AND k.conrelid = e.objid
        CROSS JOIN unnest(k.conkey, k.confkey) AS u (here, there)
        JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.here
        JOIN pg_attribute AS r ON r.attrelid = k.confrelid AND r.attnum = u.there
        JOIN _snowflake.defaults AS d ON d.relation = k.confrelid AND d.number = u.there AND d.function = issue
        WHERE e.classid = 'pg_class'::regclass AND NOT e.in_extension
          AND a.atttypid IN ('integer'::regtype, 'smallint'::regtype)
        ORDER BY 1, 2
    LOOP
        RAISE WARNING 'column "%" of table % is of type %, which cannot hold IDs of key %',
            key.name, key.table_name, key.type, key.refers_to
            USING HINT = format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint', key.table_name, key.name);
    END LOOP;
    PERFORM set_config('snowflake_id.new_keys', 'on', true);
END
$$;
COMMENT ON FUNCTION _snowflake.new_keys() IS 'internal: gives new keys snowflake IDs, where setting snowflake_id.new_keys is on';

CREATE EVENT TRIGGER snowflake_id_new_keys ON ddl_command_end
    WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA') EXECUTE FUNCTION _snowflake.new_keys();
COMMENT ON EVENT TRIGGER snowflake_id_new_keys IS 'does nothing unless setting snowflake_id.new_keys is on';
