-- Generators in a cluster of Citus.
--
-- Citus takes the sequence in DEFAULT snowflake_nextval('order_ids') for that of a serial
-- column: it makes the sequence on all nodes, with its owner and its grants, but without
-- its label. snowflake_distribute_generator() brings the label. The library knows nothing
-- of Citus: it is found in pg_extension, and asked through its own functions.
--
-- What runs on another node is one call of a function of this file, with all values as
-- literals. Citus connects as the role that asks, so the call has the rights of that
-- role there, and its search_path: so each literal has a type, since PostgreSQL would
-- take a function of another user that fits better, and there are no operators outside
-- the function. The call is a transaction of its own, which a later ROLLBACK here does
-- not undo: so a change is made here first, where it is checked, then tried on all
-- nodes, and repeating it does no harm.
--
-- As in set_default.sql, no function is SECURITY DEFINER, each has a search_path without
-- schemas in which others may create objects, and in format() a %s is what PostgreSQL has
-- written as SQL.

-- What a statement returns on each worker.
CREATE FUNCTION _snowflake.on_workers(command text, OUT node text, OUT success boolean, OUT result text)
    RETURNS SETOF record LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- A clone gets its data from its origin, and takes no changes.
    RETURN QUERY EXECUTE
        'SELECT format(''%s:%s'', w.nodename, w.nodeport), w.success, w.result
         FROM pg_catalog.run_command_on_workers($1) AS w ORDER BY w.nodename, w.nodeport'
        USING command;
END
$$;

-- Refuses a call on a worker.
CREATE FUNCTION _snowflake.check_coordinator(function text) RETURNS void
    LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_coordinator boolean;
BEGIN
    -- A node to which no other was added yet is a coordinator, too.
    EXECUTE 'SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group' INTO is_coordinator;
    IF NOT is_coordinator THEN
        RAISE EXCEPTION '% works on the coordinator of Citus only', function
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Call it there: it reaches the workers from there.';
    END IF;
END
$$;

-- The label of a sequence; null if there is none.
CREATE FUNCTION _snowflake.label(generator regclass) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.label FROM pg_seclabel AS l
    WHERE l.provider = 'snowflake_id' AND l.classoid = 'pg_class'::regclass
      AND l.objoid = generator AND l.objsubid = 0
$$;

-- The relation with this name; null if there is none. A name that is longer than any is not looked
-- up: PostgreSQL takes a time that grows with the square of its length, and cannot be cancelled.
CREATE FUNCTION _snowflake.find_relation(name text) RETURNS regclass
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN octet_length(name) <= 4096 THEN to_regclass(name) END
$$;

-- The label of a generator on this node, the worker ID, and why this node can issue no IDs
-- for a role.
CREATE FUNCTION _snowflake.readiness(name text, owner name) RETURNS jsonb
    LANGUAGE sql STABLE STRICT PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    SELECT jsonb_build_object(
        'label', _snowflake.label(wanted.generator),
        'worker_id', g.worker_id,
        'problem', CASE
            WHEN wanted.generator IS NULL THEN 'the generator does not exist'
            WHEN g.generator IS NULL THEN 'the sequence has no label'
            WHEN g.problem IS NOT NULL THEN g.problem
            WHEN g.worker_id IS NULL THEN 'IDs of this layout carry no worker ID: all nodes would issue the same IDs'
            WHEN NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.rolname = owner) THEN
                format('role %I does not exist', owner)
            WHEN NOT has_sequence_privilege(owner, wanted.generator, 'USAGE, UPDATE') THEN
                format('role %I, which owns the table, may not use the generator: GRANT USAGE ON SEQUENCE %s TO %I',
                    owner, wanted.generator, owner)
            END)
    FROM (SELECT _snowflake.find_relation(name) AS generator) AS wanted
    LEFT JOIN _snowflake.generators() AS g ON g.generator = wanted.generator
$$;

-- Refuses a generator of which some node can issue no IDs for a role, or of which two nodes
-- would issue the same.
CREATE FUNCTION _snowflake.check_nodes(generator regclass, owner name) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    generator_name text := _snowflake.name(generator);
    found text;
BEGIN
    WITH answer AS MATERIALIZED (
        SELECT 'this node' AS node, true AS success,
            _snowflake.readiness(generator_name, owner)::text AS result
        UNION ALL
        SELECT w.node, w.success, w.result
        FROM _snowflake.on_workers(format(
            'SELECT %s(%L::pg_catalog.text, %L::pg_catalog.name)',
            '_snowflake.readiness', generator_name, owner)) AS w
    ), node AS (
        SELECT a.node, CASE WHEN a.success THEN a.result::jsonb END AS it,
            CASE WHEN NOT a.success THEN a.result END AS error
        FROM answer AS a
    ), finding AS (
        SELECT n.node, coalesce(n.error, n.it->>'problem') AS problem FROM node AS n
        UNION ALL
        SELECT n.node, 'its label is another one than on the coordinator' FROM node AS n
        WHERE n.it->>'problem' IS NULL
          AND n.it->>'label' IS DISTINCT FROM _snowflake.label(generator)
        UNION ALL
        SELECT string_agg(n.node, ' and ' ORDER BY n.node),
            format('both have worker ID %s, and would issue the same IDs', n.it->>'worker_id')
        FROM node AS n WHERE n.it->>'worker_id' IS NOT NULL
        GROUP BY n.it->>'worker_id' HAVING count(*) > 1
    )
    SELECT string_agg(format('%s: %s', f.node, f.problem), '; ' ORDER BY f.node) INTO found
    FROM finding AS f WHERE f.problem IS NOT NULL;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'not all nodes of Citus can issue IDs of generator %', generator_name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = found || '.',
            HINT = format('To bring a generator, its label and its grants to all nodes, run, and commit: '
                'SELECT * FROM snowflake_distribute_generator(%L)', generator_name);
    END IF;
END
$$;

-- How Citus distributes a table; null if it does not know the table.
CREATE FUNCTION _snowflake.distribution(relation regclass) RETURNS jsonb
    LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found jsonb;
BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        -- A table of the same group, so that the table can be put back into that group;
        -- partitions go with their tables.
        EXECUTE 'SELECT jsonb_build_object(
                ''method'', p.partmethod,
                ''column'', CASE WHEN p.partmethod <> ''n''
                    THEN pg_catalog.column_to_column_name(p.logicalrelid, p.partkey) END,
                ''shards'', (SELECT count(*) FROM pg_catalog.pg_dist_shard AS s WHERE s.logicalrelid = p.logicalrelid),
                ''beside'', (
                    SELECT format(''%I.%I'', n.nspname, c.relname)
                    FROM pg_catalog.pg_dist_partition AS o
                    JOIN pg_catalog.pg_class AS c ON c.oid = o.logicalrelid AND NOT c.relispartition
                    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE o.colocationid = p.colocationid AND o.partmethod = p.partmethod
                      AND p.colocationid <> 0 AND o.logicalrelid <> p.logicalrelid
                    ORDER BY n.nspname, c.relname LIMIT 1))
            FROM pg_catalog.pg_dist_partition AS p WHERE p.logicalrelid = $1'
            INTO found USING relation;
    END IF;
    IF found IS NOT NULL THEN
        PERFORM _snowflake.check_coordinator('snowflake_set_default()');
        IF NOT current_setting('citus.enable_ddl_propagation')::boolean THEN
            RAISE EXCEPTION 'the default of table % would not reach the workers', _snowflake.name(relation)
                USING ERRCODE = 'object_not_in_prerequisite_state',
                DETAIL = 'citus.enable_ddl_propagation is off in this session.',
                HINT = 'SET citus.enable_ddl_propagation = on';
        END IF;
    END IF;
    RETURN found;
END
$$;

-- Whether the default of a column on this node uses a generator.
CREATE FUNCTION _snowflake.has_default(table_name text, column_name name, source text) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
    -- pg_get_expr() would wait for the lock that the coordinator holds on this node, too.
    SELECT EXISTS (
        SELECT FROM pg_attribute AS a
        JOIN _snowflake.default_generators(a.attrelid) AS g ON g.number = a.attnum
        WHERE a.attrelid = _snowflake.find_relation(table_name) AND a.attname = column_name AND NOT a.attisdropped
          AND g.generator = _snowflake.find_relation(source))
$$;

-- Refuses a distribution column whose default is another one on some worker.
CREATE FUNCTION _snowflake.check_default(relation regclass, column_name name, generator regclass) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := _snowflake.name(relation);
    found text := (
        SELECT string_agg(format('%s: %s', w.node,
                CASE WHEN w.success THEN 'the default is missing, or another one' ELSE w.result END),
            '; ' ORDER BY w.node)
        FROM _snowflake.on_workers(format(
            'SELECT %s(%L::pg_catalog.text, %L::pg_catalog.name, %L::pg_catalog.text)',
            '_snowflake.has_default', table_name, column_name,
            _snowflake.name(generator))) AS w
        WHERE NOT w.success OR w.result <> 't');
BEGIN
    IF found IS NOT NULL THEN
        RAISE EXCEPTION '%.% has another default on some nodes of Citus', table_name, quote_ident(column_name)
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = found || '.',
            HINT = 'To send the table to the workers again: SELECT start_metadata_sync_to_all_nodes()';
    END IF;
END
$$;

-- The comments of a table and its parts, as statements.
CREATE FUNCTION _snowflake.comments(relation regclass) RETURNS SETOF text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
    WITH member AS MATERIALIZED (
        SELECT relation AS id UNION SELECT t.relid FROM pg_partition_tree(relation) AS t)
    SELECT CASE d.objsubid WHEN 0 THEN format('COMMENT ON TABLE %s IS %L', m.id, d.description)
        ELSE format('COMMENT ON COLUMN %s.%I IS %L', m.id, a.attname, d.description) END
    FROM member AS m
    JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = m.id
    LEFT JOIN pg_attribute AS a ON a.attrelid = m.id AND a.attnum = d.objsubid
    UNION ALL
    SELECT format('COMMENT ON INDEX %s IS %L', i.indexrelid::regclass, d.description)
    FROM member AS m JOIN pg_index AS i ON i.indrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_class'::regclass AND d.objoid = i.indexrelid AND d.objsubid = 0
    UNION ALL
    SELECT format('COMMENT ON CONSTRAINT %I ON %s IS %L', k.conname, m.id, d.description)
    FROM member AS m JOIN pg_constraint AS k ON k.conrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_constraint'::regclass AND d.objoid = k.oid
    UNION ALL
    SELECT format('COMMENT ON TRIGGER %I ON %s IS %L', g.tgname, m.id, d.description)
    FROM member AS m JOIN pg_trigger AS g ON g.tgrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_trigger'::regclass AND d.objoid = g.oid
    UNION ALL
    SELECT format('COMMENT ON POLICY %I ON %s IS %L', o.polname, m.id, d.description)
    FROM member AS m JOIN pg_policy AS o ON o.polrelid = m.id
    JOIN pg_description AS d ON d.classoid = 'pg_policy'::regclass AND d.objoid = o.oid
    UNION ALL
    SELECT format('COMMENT ON STATISTICS %I.%I IS %L', n.nspname, x.stxname, d.description)
    FROM member AS m JOIN pg_statistic_ext AS x ON x.stxrelid = m.id
    JOIN pg_namespace AS n ON n.oid = x.stxnamespace
    JOIN pg_description AS d ON d.classoid = 'pg_statistic_ext'::regclass AND d.objoid = x.oid
$$;

-- Makes a table of Citus a local one, and says so before; returns the new table.
CREATE FUNCTION _snowflake.undistribute(relation regclass, column_name name, distribution jsonb) RETURNS regclass
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_name text := _snowflake.name(relation);
BEGIN
    IF distribution->>'method' <> 'h' THEN
        RAISE EXCEPTION 'table % is not distributed by hash', table_name
            USING ERRCODE = 'feature_not_supported',
            DETAIL = format('"%s" is its distribution column, whose default Citus does not change, '
                'and the table cannot be distributed again as it is.', column_name),
            HINT = 'Make a table with the default, distribute it, and copy the rows.';
    END IF;
    RAISE NOTICE 'table % is undistributed, and distributed again', table_name
        USING DETAIL = format('"%s" is the distribution column, whose default Citus does not change. '
                'All rows are copied to this node and back, and the table is locked meanwhile.', column_name),
            HINT = 'If this node has no room for the rows, cancel this call: nothing has been changed.';
    -- Citus makes a new table of the same name.
    EXECUTE 'SELECT pg_catalog.undistribute_table($1)' USING relation;
    RETURN table_name::regclass;
END
$$;

-- Distributes a table by hash, in its group or with its number of shards, and gives it its
-- comments back.
CREATE FUNCTION _snowflake.distribute(relation regclass, distribution jsonb) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    comment text;
BEGIN
    IF distribution->>'beside' IS NOT NULL THEN
        EXECUTE 'SELECT pg_catalog.create_distributed_table($1, $2, colocate_with => $3)'
            USING relation, distribution->>'column', distribution->>'beside';
    ELSE
        EXECUTE 'SELECT pg_catalog.create_distributed_table($1, $2, colocate_with => ''none'', shard_count => $3)'
            USING relation, distribution->>'column', (distribution->>'shards')::integer;
    END IF;
    FOR comment IN SELECT c.statement FROM jsonb_array_elements_text(distribution->'comments') AS c (statement) LOOP
        EXECUTE comment;
    END LOOP;
END
$$;

-- Gives a sequence that Citus has made on a worker the label that it has on the coordinator.
-- The library calls this function after ALTER SEQUENCE, where a sequence has the INCREMENT
-- of a generator's and no label: so Citus leaves it where it has made the sequence, for a
-- new table or on a new node.
CREATE FUNCTION _snowflake.adopt_label(generator regclass) RETURNS boolean
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    is_coordinator boolean;
    found text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        RETURN false;
    END IF;
    EXECUTE 'SELECT groupid = 0 FROM pg_catalog.pg_dist_local_group' INTO is_coordinator;
    IF is_coordinator THEN
        RETURN false;
    END IF;
    -- Citus waits for this command, and would not add or activate this node without it.
    -- snowflake_distribute_generator() can bring the label later, and says what is wrong.
    BEGIN
        EXECUTE 'SELECT c.result FROM pg_catalog.run_command_on_coordinator($1) AS c WHERE c.success'
            INTO found USING format(
                'SELECT %s(pg_catalog.to_regclass(%L::pg_catalog.text))',
                '_snowflake.label', _snowflake.name(generator));
        IF coalesce(found, '') = '' THEN
            RETURN false;
        END IF;
        EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', generator, found);
        RETURN true;
    EXCEPTION WHEN others THEN
        RAISE WARNING 'sequence % did not get its label from the coordinator: %',
            _snowflake.name(generator), SQLERRM;
        RETURN false;
    END;
END
$$;

SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION _snowflake.create_generator(name text, label text) RETURNS regclass
    LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT @extschema@.snowflake_create_generator(name, label);
END;
SET LOCAL search_path = @extschema@, pg_temp;

-- Makes or labels a generator on this node, with this owner and these grants; returns what
-- was done.
CREATE FUNCTION _snowflake.place_generator(name text, label text, owner name, grants jsonb) RETURNS text
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    generator regclass := _snowflake.find_relation(name);
    before text;
    outcome text := 'unchanged';
    it record;
BEGIN
    -- This is the part of one node: Citus neither sends it on nor refuses it.
    PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
    -- A relabelling waits here for those who take IDs, and those may wait for the
    -- coordinator: no server sees such a deadlock.
    PERFORM set_config('lock_timeout', '30s', true);
    IF generator IS NULL THEN
        generator := _snowflake.create_generator(name, label);
        outcome := 'created';
    ELSE
        before := _snowflake.label(generator);
        IF before IS DISTINCT FROM label THEN
            EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', generator, label);
            outcome := CASE WHEN before IS NULL THEN 'labelled' ELSE 'relabelled' END;
        END IF;
    END IF;
    -- A sequence that a column owns has the owner of its table.
    IF EXISTS (SELECT FROM pg_class AS c WHERE c.oid = generator AND pg_get_userbyid(c.relowner) <> owner)
        AND NOT EXISTS (
            SELECT FROM pg_depend AS d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = generator AND d.deptype IN ('a', 'i')
              AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid > 0)
    THEN
        EXECUTE format('ALTER SEQUENCE %s OWNER TO %I', generator, owner);
    END IF;
    FOR it IN
        WITH wanted AS (
            SELECT w.grantee, w.privilege, w.grantable
            FROM jsonb_to_recordset(grants) AS w (grantee name, privilege text, grantable boolean)),
        had AS (
            SELECT CASE WHEN a.grantee <> 0 THEN pg_get_userbyid(a.grantee) END AS grantee,
                a.privilege_type AS privilege, a.is_grantable AS grantable
            FROM pg_class AS c
            CROSS JOIN aclexplode(coalesce(c.relacl, acldefault('s', c.relowner))) AS a
            WHERE c.oid = generator)
        SELECT false AS given, h.* FROM had AS h
        WHERE NOT EXISTS (SELECT FROM wanted AS w WHERE w IS NOT DISTINCT FROM h)
        UNION ALL
        SELECT true, w.* FROM wanted AS w
        WHERE NOT EXISTS (SELECT FROM had AS h WHERE w IS NOT DISTINCT FROM h)
        ORDER BY given
    LOOP
        IF it.privilege NOT IN ('USAGE', 'SELECT', 'UPDATE') THEN
            RAISE EXCEPTION 'unknown privilege on a sequence' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        EXECUTE CASE WHEN it.given
            THEN format('GRANT %s ON SEQUENCE %s TO %s', it.privilege, generator,
                coalesce(quote_ident(it.grantee), 'PUBLIC')) || CASE WHEN it.grantable THEN ' WITH GRANT OPTION' ELSE '' END
            ELSE format('REVOKE %s ON SEQUENCE %s FROM %s CASCADE', it.privilege, generator,
                coalesce(quote_ident(it.grantee), 'PUBLIC')) END;
    END LOOP;
    RETURN outcome;
END
$$;

-- Does what _snowflake.place_generator() does, and undoes it; the error says why it cannot
-- be done.
CREATE FUNCTION _snowflake.try_generator(name text, label text, owner name, grants jsonb) RETURNS void
    LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
BEGIN
    PERFORM _snowflake.place_generator(name, label, owner, grants);
    -- The handler undoes all that was done since BEGIN.
    RAISE EXCEPTION 'tried' USING ERRCODE = 'SFTRY';
EXCEPTION WHEN SQLSTATE 'SFTRY' THEN
    RETURN;
END
$$;

-- This function is not STRICT: NULL for the label has a meaning.
CREATE FUNCTION _snowflake.snowflake_distribute_generator(
    generator regclass, label text, OUT node text, OUT outcome text)
    RETURNS SETOF record LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    generator_name text := _snowflake.name(generator);
    here text := _snowflake.label(generator);
    class pg_class;
    propagates text;
    grants jsonb;
    placed text;
    failed text;
    it record;
BEGIN
    IF generator IS NULL THEN
        RAISE EXCEPTION 'generator must not be null' USING ERRCODE = 'null_value_not_allowed';
    ELSIF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
        RAISE EXCEPTION 'Citus is not installed in this database'
            USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Without Citus, call snowflake_create_generator() with the same arguments on each server.';
    END IF;
    PERFORM _snowflake.check_coordinator('snowflake_distribute_generator()');
    SELECT c.* INTO class FROM pg_class AS c WHERE c.oid = generator;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'relation with OID % does not exist', generator::oid
            USING ERRCODE = 'undefined_table';
    ELSIF class.relpersistence = 't' THEN
        RAISE EXCEPTION '% is a temporary sequence', generator_name
            USING ERRCODE = 'feature_not_supported', DETAIL = 'It belongs to this session, which the other nodes do not know.';
    ELSIF generator = _snowflake.default_generator() THEN
        RAISE EXCEPTION 'the default generator is on every node that has the extension'
            USING ERRCODE = 'wrong_object_type',
            HINT = 'Citus creates the extension on its nodes by itself.';
    ELSIF here IS NULL AND label IS NULL THEN
        RAISE EXCEPTION '% is not a generator', generator_name
            USING ERRCODE = 'wrong_object_type',
            HINT = 'Give the label, or make a generator: '
                'SELECT * FROM snowflake_distribute_generator(snowflake_create_generator(name, ...))';
    ELSIF NOT pg_has_role(class.relowner, 'USAGE') THEN
        RAISE EXCEPTION 'must be owner of generator %', generator_name
            USING ERRCODE = 'insufficient_privilege',
            HINT = format('Role %I owns it: that role and its members can do this.', pg_get_userbyid(class.relowner));
    END IF;

    IF label IS NULL OR label = here THEN
        -- Until the end of this transaction nobody changes the label here, so that no
        -- node gets a label that is an old one by then.
        EXECUTE format('SELECT FROM %s', generator);
        here := _snowflake.label(generator);
    END IF;
    IF label IS DISTINCT FROM here AND label IS NOT NULL THEN
        -- Otherwise Citus says that the label stays here.
        propagates := current_setting('citus.enable_ddl_propagation', true);
        PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
        EXECUTE format('SECURITY LABEL FOR snowflake_id ON SEQUENCE %s IS %L', generator, label);
        PERFORM set_config('citus.enable_ddl_propagation', propagates, true);
        outcome := CASE WHEN here IS NULL THEN 'labelled' ELSE 'relabelled' END;
    ELSE
        outcome := 'unchanged';
    END IF;
    -- A node without a worker ID gets the generator too. But a layout without one is for
    -- servers whose labels differ.
    IF EXISTS (SELECT FROM _snowflake.generators() AS g
               WHERE g.generator = class.oid AND g.problem IS NULL AND g.worker_id IS NULL)
    THEN
        RAISE EXCEPTION 'IDs of generator % carry no worker ID', generator_name
            USING ERRCODE = 'invalid_parameter_value',
            DETAIL = 'With the same label, all nodes would issue the same IDs.',
            HINT = 'Give the layout a field for the worker ID, such as worker:10; '
                'or set a label of its own on each node, with another value of the fixed field.';
    END IF;
    node := 'this node';
    RETURN NEXT;

    grants := (
        SELECT coalesce(jsonb_agg(jsonb_build_object(
            'grantee', CASE WHEN a.grantee <> 0 THEN pg_get_userbyid(a.grantee) END,
            'privilege', a.privilege_type, 'grantable', a.is_grantable)), '[]')
        FROM aclexplode(coalesce(class.relacl, acldefault('s', class.relowner))) AS a);
    placed := format('(%L::pg_catalog.text, %L::pg_catalog.text, %L::pg_catalog.name, %L::pg_catalog.jsonb)',
        generator_name, _snowflake.label(generator), pg_get_userbyid(class.relowner), grants);
    -- Each call on a worker is a transaction of its own. So all of them try first: a worker
    -- that is away, or refuses, is found before any of them has changed.
    failed := (
        SELECT string_agg(format('%s: %s', w.node, w.result), '; ' ORDER BY w.node)
        FROM _snowflake.on_workers(
            'SELECT _snowflake.try_generator' || placed) AS w
        WHERE NOT w.success);
    IF failed IS NOT NULL THEN
        RAISE EXCEPTION 'generator % cannot reach all nodes of Citus', generator_name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = failed || '.',
            HINT = 'Nothing was changed on any node. Remove the cause, and call this again.';
    END IF;
    FOR it IN
        SELECT w.node, w.success, w.result FROM _snowflake.on_workers(
            'SELECT _snowflake.place_generator' || placed) AS w
    LOOP
        IF it.success THEN
            node := it.node;
            outcome := it.result;
            RETURN NEXT;
        ELSE
            failed := concat_ws('; ', failed, format('%s: %s', it.node, it.result));
        END IF;
    END LOOP;
    IF failed IS NOT NULL THEN
        RAISE EXCEPTION 'generator % did not reach all nodes of Citus', generator_name
            USING ERRCODE = 'object_not_in_prerequisite_state', DETAIL = failed || '.',
            HINT = 'The change was undone on this node, and stays on the nodes that the detail does not name. '
                'Remove the cause, and call this again.';
    END IF;
END
$$;

-- Not STRICT: NULL for the label has a meaning.
CREATE FUNCTION snowflake_distribute_generator(
    generator regclass, label text DEFAULT NULL, OUT node text, OUT outcome text)
    RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake.hold();
    SELECT d.* FROM _snowflake.snowflake_distribute_generator(generator, label) AS d;
END;
COMMENT ON FUNCTION snowflake_distribute_generator(regclass, text) IS
    'makes or relabels a generator on all nodes of Citus, with its owner and its grants; one '
    'row for each node. Called on the coordinator, again after a node was added';
