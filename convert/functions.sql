-- Functions with integers, changed to bigint for a person to review: nothing runs these statements
-- but who reads them.

-- A statement or the text of a function with bigint for the integer types in it. Strings, also those
-- between dollars, quoted names and comments stay as they are. PostgreSQL writes the head of CREATE
-- FUNCTION, and there a type has its long name, and int2 or int4 is an argument. In a text, a type
-- follows :: or a name, as in a declaration, or AS, and no keyword before a name or an expression; and
-- int2 or int4 is none if an argument has this name. A text that cannot be read to its end stays as
-- it is, and so does one that takes long.
CREATE FUNCTION _snowflake_convert.widened(text text, is_head boolean, arguments text[]) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
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

CREATE FUNCTION _snowflake_convert.snowflake_convert_functions(
    relations regclass[], schemas regnamespace[],
    OUT function regprocedure, OUT of_trigger boolean, OUT statement text)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET jit = off SET search_path = pg_catalog, pg_temp
    SET quote_all_identifiers = off SET standard_conforming_strings = on
AS $$
DECLARE
    it record;
    tag text;
    head text;
    becomes text;
BEGIN
    FOR it IN
        SELECT f.*, p.prosrc, coalesce(p.proargnames, '{}') AS arguments, r.drop_statement, r.statements
        FROM _snowflake_convert.functions(_snowflake_convert.work_of(_snowflake_convert.tables(relations, schemas), relations IS NOT NULL,
            NULL, true, NULL, NULL, false)) AS f
        JOIN pg_proc AS p ON p.oid = f.id JOIN pg_language AS l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
        CROSS JOIN _snowflake_convert.remake('pg_proc'::regclass, f.id) AS r
        -- Only the caller's own: the text of others would run with the caller's rights.
        WHERE (f.is_typed OR f.is_called) AND p.proowner = (SELECT u.oid FROM pg_roles AS u WHERE u.rolname = current_user)
        ORDER BY NOT f.of_trigger, f.id::regprocedure::text
    LOOP
        -- One with a body of SQL has no text.
        tag := CASE WHEN it.prosrc <> '' THEN substring(it.statements[1] FROM '\$\w+\$\Z') ELSE '' END;
        head := left(it.statements[1], length(it.statements[1]) - length(it.prosrc) - 2 * length(tag));
        becomes := _snowflake_convert.widened(head, true, '{}');
        function := it.id;
        of_trigger := it.of_trigger;
        statement := becomes || tag || _snowflake_convert.widened(it.prosrc, false, it.arguments) || tag;
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
END
$$;

CREATE FUNCTION snowflake_convert_functions(
    relations regclass[] DEFAULT NULL, schemas regnamespace[] DEFAULT NULL,
    OUT function regprocedure, OUT of_trigger boolean, OUT statement text)
    RETURNS SETOF record LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT _snowflake_convert.hold();
    SELECT f.* FROM _snowflake_convert.snowflake_convert_functions(relations, schemas) AS f;
END;
COMMENT ON FUNCTION snowflake_convert_functions(regclass[], regnamespace[]) IS
    'for review: the statements that give bigint to what is integer in the functions that snowflake_convert_plan() names, '
    'and the caller owns, those first that triggers of the tables run';
