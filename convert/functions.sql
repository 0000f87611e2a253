-- Functions with integers, changed to bigint for a person to review: nothing runs these statements
-- but who reads them.

-- A statement or the text of a function with bigint for the integer types in it. Strings, also those
-- between dollars, quoted names and comments stay as they are. PostgreSQL writes the head of CREATE
-- FUNCTION, and there a type has its long name, and int2 or int4 is an argument. In a text, a type
-- follows :: or a name, as in a declaration, or AS, and no keyword before a name or an expression; and
-- int2 or int4 is none if an argument has this name. A text that cannot be read to its end stays as
-- it is, and so does one that takes long.
CREATE FUNCTION _snowflake_convert.widened(text text, is_head boolean, arguments text[]) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN length(text) > 1000000 OR regexp_count(text, '\$\w*\$') > 100 THEN text ELSE (
        WITH tokens AS (
            SELECT t.parts[1] AS token, t.place, t.parts[1] ~ '^(\s|--|/\*)' AS is_space
            -- The shortest token at each place: so that a string between dollars ends at its first end.
            FROM regexp_matches(text, '((?:--[^\n]*(?:\n|$)|/\*(?:[^*]|\*+[^*/])*\*+/|[eE]''(?:[^''\\]|\\.|'''')*''|''(?:[^'']|'''')*'''
                '|"(?:[^"]|"")*"|(\$(?:[[:alpha:]_]\w*)?\$).*?\2|(?![eE]'')[[:alpha:]_][\w$]*(?![\w$])|::'
                '|[^''"$/:[:alpha:]_-]|/(?!\*)|-(?!-)|:(?!:)|\$(?!(?:[[:alpha:]_]\w*)?\$)){1,1}?)', 'g') WITH ORDINALITY AS t (parts, place)),
        beside AS (
            SELECT t.*, lower(lag(t.token) OVER w) AS before, lead(t.token) OVER w AS after
            FROM tokens AS t WINDOW w AS (PARTITION BY t.is_space ORDER BY t.place)),
        result AS (
            SELECT string_agg(b.token, '' ORDER BY b.place) AS was, string_agg(CASE
                WHEN NOT b.is_space AND (lower(b.token) IN ('integer', 'smallint') OR NOT is_head AND (lower(b.token) = 'int'
                        OR lower(b.token) IN ('int2', 'int4') AND lower(b.token) <> ALL (arguments)))
                    AND (is_head OR b.before = '::' OR b.before ~ '^[[:alpha:]_"]' AND b.after NOT IN ('(', '.') AND b.before NOT IN (
                        'select', 'distinct', 'where', 'and', 'or', 'not', 'by', 'on', 'when', 'then', 'else', 'set', 'into', 'return',
                        'returning', 'if', 'elsif', 'while', 'case', 'between', 'perform', 'from', 'join', 'update', 'using', 'begin', 'loop',
                        'declare', 'for', 'foreach', 'having', 'limit', 'offset', 'strict', 'execute', 'diagnostics', 'assert'))
                THEN 'bigint' ELSE b.token END, '' ORDER BY b.place) AS becomes
            FROM beside AS b)
        SELECT CASE WHEN r.was = text THEN r.becomes ELSE text END FROM result AS r)
    END
$$;

CREATE FUNCTION _snowflake_convert.snowflake_convert_functions(relations regclass[], schemas regnamespace[],
    OUT function regprocedure, OUT of_trigger boolean, OUT statement text)
    RETURNS SETOF record LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on AS $$
DECLARE
    it record;
    tag text;
    head text;
    becomes text;
BEGIN
    FOR it IN
        WITH RECURSIVE listed AS MATERIALIZED (
        SELECT f.*, p.prosrc, coalesce(p.proargnames, '{}') AS arguments, r.drop_statement, r.statements, q.results, q.names,
            p.prosrc || coalesce(pg_get_function_sqlbody(p.oid), '') AS text, format('\m%s"?\s*\(', regexp_replace(p.proname, '(\W)', '\\\1', 'g')) AS call
        FROM _snowflake_convert.functions(_snowflake_convert.work_of(
            _snowflake_convert.request(relations, schemas, '{}', NULL, true), NULL, NULL, false)) AS f
        JOIN pg_proc AS p ON p.oid = f.id JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
        CROSS JOIN _snowflake_convert.remake('pg_proc'::regclass, f.id) AS r
        CROSS JOIN LATERAL (SELECT string_agg(format('c%s::%s', o.place, _snowflake_convert.widened(format_type(o.type, NULL), true, '{}')), ', ' ORDER BY o.place),
                string_agg('c' || o.place, ', ' ORDER BY o.place)
            FROM unnest(CASE WHEN p.proargmodes IS NULL THEN ARRAY[p.prorettype] ELSE p.proallargtypes END, coalesce(p.proargmodes, '{t}')) WITH ORDINALITY AS o (type, mode, place)
            WHERE p.proretset AND o.mode IN ('o', 'b', 't') AND NOT EXISTS (SELECT FROM pg_type AS y WHERE y.oid = o.type AND y.typtype = 'c')) AS q (results, names)
        -- Only the caller's own: the text of others would run with the caller's rights.
        WHERE (f.is_typed OR f.is_called) AND p.proowner = (SELECT u.oid FROM pg_roles AS u WHERE u.rolname = current_user)
        ), direct AS MATERIALIZED (SELECT a.id AS caller, b.id AS callee FROM listed AS a JOIN listed AS b ON a.id <> b.id AND a.text ~* b.call),
        calls AS (SELECT * FROM direct UNION SELECT c.caller, d.callee FROM calls AS c JOIN direct AS d ON d.caller = c.callee)
        -- Those first that others call.
        SELECT l.* FROM listed AS l
        ORDER BY (SELECT count(*) FROM calls AS c WHERE c.caller = l.id), NOT l.of_trigger, l.id::regprocedure::text
    LOOP
        -- One with a body of SQL has no text.
        tag := CASE WHEN it.prosrc <> '' THEN substring(it.statements[1] FROM '\$\w+\$\Z') ELSE '' END;
        head := left(it.statements[1], length(it.statements[1]) - length(it.prosrc) - 2 * length(tag));
        becomes := _snowflake_convert.widened(head, true, '{}');
        function := it.id;
        of_trigger := it.of_trigger;
        statement := _snowflake_convert.widened(it.prosrc, false, it.arguments);
        IF becomes <> head AND it.results IS NOT NULL THEN
            -- RETURN QUERY takes exactly the types of the result: with casts, it works before the columns change, and after.
            statement := regexp_replace(statement, '(\mRETURN\s+QUERY\s+)(?!\s|EXECUTE\M)((?:[^;''"$]|''(?:[^'']|'''')*''|"(?:[^"]|"")*")*);',
                '\1SELECT ' || replace(it.results, '\', '\\') || ' FROM (\2) AS result (' || it.names || ');', 'gi');
        END IF;
        statement := becomes || tag || statement || tag;
        IF becomes <> head THEN
            -- With other types it would be one more function, or an error.
            statement := it.drop_statement || E';\n' || statement || (
                SELECT coalesce(string_agg(E';\n' || _snowflake_convert.widened(s, true, '{}'), '' ORDER BY place), '')
                FROM unnest(it.statements[2:]) WITH ORDINALITY AS s (s, place));
        END IF;
        IF statement <> it.statements[1] THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END $$;

CREATE FUNCTION snowflake_convert_functions(relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    OUT function regprocedure, OUT of_trigger boolean, OUT statement text) RETURNS SETOF record LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake_convert.hold();
    SELECT f.* FROM _snowflake_convert.snowflake_convert_functions(relations, schemas) AS f;
END;
COMMENT ON FUNCTION snowflake_convert_functions(regclass[], regnamespace[]) IS
    'for review: the statements that give bigint to what is integer in the functions that snowflake_convert_plan() names, '
    'and the caller owns, those first that triggers of the tables run';

CREATE FUNCTION _snowflake_convert.snowflake_convert_candidates(relations regclass[], schemas regnamespace[], backfill boolean, OUT also text, OUT note text)
    RETURNS SETOF record LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on AS $$
BEGIN
    RETURN QUERY SELECT r.also, r.described
    FROM _snowflake_convert.work_of(_snowflake_convert.request(relations, schemas, '{}', NULL, true), NULL, CASE WHEN backfill THEN 0 END, false) AS w
    CROSS JOIN _snowflake_convert.references_of(w) AS r WHERE r.also IS NOT NULL ORDER BY r.also;
END $$;

CREATE FUNCTION snowflake_convert_candidates(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL, backfill boolean DEFAULT false, OUT also text, OUT note text)
    RETURNS SETOF record LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake_convert.hold();
    SELECT c.* FROM _snowflake_convert.snowflake_convert_candidates(relations, schemas, backfill) AS c;
END;
COMMENT ON FUNCTION snowflake_convert_candidates(regclass[], regnamespace[], boolean) IS
    'for review: the columns that may have keys of tables without a foreign key, as argument also of the conversion takes them; '
    'with backfill, also those that are bigint already';
