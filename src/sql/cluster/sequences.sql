-- The sequences of the database that were made for IDs: which of them have no label, and
-- which tables use one in a default. A sequence has the step of a generator's from its
-- making; Citus and pg_dump bring it along where they leave the label behind.
WITH sequence AS MATERIALIZED (
    SELECT made.seqrelid AS id, made.seqrelid::regclass::text AS name,
        EXISTS (SELECT FROM pg_seclabel AS label
                WHERE label.provider = 'snowflake_id' AND label.classoid = 'pg_class'::regclass
                  AND label.objoid = made.seqrelid AND label.objsubid = 0)
        -- The default generator needs no label.
        OR EXISTS (SELECT FROM pg_depend AS member
                   WHERE member.classid = 'pg_class'::regclass AND member.objid = made.seqrelid
                     AND member.deptype = 'e') AS has_label
    FROM pg_sequence AS made JOIN pg_class AS class ON class.oid = made.seqrelid
    WHERE made.seqincrement = 9223372036854775807 AND class.relpersistence <> 't'
), use AS (
    SELECT sequence.name, adrelid::regclass::text AS relation, $is_distributed$ AS is_distributed
    FROM sequence
    JOIN pg_depend ON refclassid = 'pg_class'::regclass AND refobjid = sequence.id
        AND classid = 'pg_attrdef'::regclass
    JOIN pg_attrdef ON pg_attrdef.oid = objid
)
SELECT jsonb_build_object(
    'without_label', (SELECT jsonb_agg(name) FROM sequence WHERE NOT has_label),
    -- One table of each sequence, of those of Citus if there is one.
    'uses', (SELECT jsonb_agg(to_jsonb(first)) FROM (
                 SELECT DISTINCT ON (name) * FROM use ORDER BY name, is_distributed DESC, relation) AS first)
) AS answer
